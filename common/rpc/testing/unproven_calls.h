// Calls a server without a token.
#ifndef CAIRN_COMMON_RPC_TESTING_UNPROVEN_CALLS_H_
#define CAIRN_COMMON_RPC_TESTING_UNPROVEN_CALLS_H_

#include <google/protobuf/descriptor.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <future>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/rpc/endpoint.h"
#include "common/status/reason.h"

namespace cairn::testing {

// Expects that the server refuses every method of all services in these files with BAD_TOKEN. The methods are read from
// the files, so new methods are checked too.
inline void ExpectBadTokenForEveryMethod(const std::string& address,
                                         const std::vector<const google::protobuf::FileDescriptor*>& files) {
  std::vector<std::string> paths = {"/cairn.v1.ServiceOfTomorrow/Do"};
  for (const google::protobuf::FileDescriptor* file : files) {
    for (int s = 0; s < file->service_count(); ++s) {
      const google::protobuf::ServiceDescriptor& service = *file->service(s);
      for (int m = 0; m < service.method_count(); ++m) {
        paths.push_back(absl::StrCat("/", service.full_name(), "/", service.method(m)->name()));
      }
      paths.push_back(absl::StrCat("/", service.full_name(), "/MethodOfTomorrow"));
    }
  }
  ASSERT_GT(paths.size(), files.size() * 2);
  grpc::GenericStub stub(MakeChannel(address));
  const grpc::Slice no_bytes("", 0);
  for (const std::string& path : paths) {
    grpc::ClientContext context;
    PrepareCall(context, absl::Seconds(30));
    grpc::ByteBuffer request(&no_bytes, 1), response;
    std::promise<grpc::Status> ended;
    stub.UnaryCall(&context, path, {}, &request, &response,
                   [&](grpc::Status status) { ended.set_value(std::move(status)); });
    const absl::Status status = CallError(ended.get_future().get(), ServerRole::kCoordinator, address);
    EXPECT_TRUE(HasReason(status, Reason::kBadToken)) << path << ": " << status;
  }
}

}  // namespace cairn::testing

#endif  // CAIRN_COMMON_RPC_TESTING_UNPROVEN_CALLS_H_
