// A gRPC server on a free port of loopback, with the settings of Cairn's own.
#ifndef CAIRN_COMMON_RPC_TESTING_LOOPBACK_SERVER_H_
#define CAIRN_COMMON_RPC_TESTING_LOOPBACK_SERVER_H_

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/rpc/endpoint.h"

namespace cairn::testing {

class LoopbackServer {
 public:
  // `service` must outlive the server's end.
  explicit LoopbackServer(grpc::Service& service) {
    grpc::ServerBuilder builder;
    ConfigureServer(builder);
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service);
    server_ = builder.BuildAndStart();
    address_ = absl::StrCat("127.0.0.1:", port);
  }

  // Cancels the calls that have not ended by themselves after `grace`. Idempotent.
  void End(std::chrono::milliseconds grace = std::chrono::seconds(2)) {
    server_->Shutdown(std::chrono::system_clock::now() + grace);
  }

  const std::string& address() const { return address_; }

 private:
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

}  // namespace cairn::testing

#endif  // CAIRN_COMMON_RPC_TESTING_LOOPBACK_SERVER_H_
