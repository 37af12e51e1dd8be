// The agent of another rank, as its consumers see it: a real gRPC server whose answers a test gives.
#ifndef CAIRN_AGENT_TRANSPORT_TESTING_SCRIPTED_SOURCE_H_
#define CAIRN_AGENT_TRANSPORT_TESTING_SCRIPTED_SOURCE_H_

#include <grpcpp/grpcpp.h>

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cairn/v1/agent_coordination_service.pb.h"
#include "cairn/v1/transfer_service.grpc.pb.h"
#include "common/base/mutex.h"
#include "common/rpc/testing/loopback_server.h"

namespace cairn::testing {

// Thread-safe. The server's threads call the scripts, one at a time; a test sets them before the first call. A call
// without a script fails with INTERNAL.
class ScriptedSource final : public v1::TransferService::Service {
 public:
  using Bytes = std::vector<std::string>;  // messages of a stream, in order

  ScriptedSource();
  ~ScriptedSource() override;

  std::function<absl::Status(const v1::AwaitRoundRequest&, v1::AwaitRoundResponse&)> await;
  std::function<absl::Status(const v1::FetchCopiesRequest&, Bytes&)> fetch;
  std::function<absl::Status(const v1::OfferWindowsRequest&)> offer;
  // Is called after `offer`, beside other calls, for the last part of a list: says when it is decided which windows
  // come by a broadcast. Without it none do.
  using Decided = std::function<void(absl::StatusOr<std::vector<uint32_t>>)>;
  std::function<void(const v1::OfferWindowsRequest&, Decided)> broadcast;
  // Changes the answer to the last part.
  std::function<void(v1::OfferWindowsResponse&)> answer_offer;

  // Returns what its consumers are told about it: rank 7, incarnation 11.
  v1::TransferPeer peer() const;
  // Returns what has come so far.
  std::vector<v1::AwaitRoundRequest> awaited();
  std::vector<v1::FetchCopiesRequest> fetched();
  std::vector<v1::OfferWindowsRequest> offered();

  grpc::Status AwaitRound(grpc::ServerContext*, const v1::AwaitRoundRequest*, v1::AwaitRoundResponse*) override;
  grpc::Status FetchCopies(grpc::ServerContext*, const v1::FetchCopiesRequest*,
                           grpc::ServerWriter<v1::FetchCopiesResponse>*) override;
  grpc::Status OfferWindows(grpc::ServerContext*, const v1::OfferWindowsRequest*, v1::OfferWindowsResponse*) override;

  // A script that returns this never answers: the call lasts until its caller gives it up, or the source ends.
  static absl::Status Hang();

 private:
  grpc::Status Answer(const absl::Status& said);

  Mutex mutex_;
  CondVar changed_;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<v1::AwaitRoundRequest> awaited_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::FetchCopiesRequest> fetched_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::OfferWindowsRequest> offered_ ABSL_GUARDED_BY(mutex_);
  LoopbackServer server_;  // its calls use all of the above
};

}  // namespace cairn::testing

#endif  // CAIRN_AGENT_TRANSPORT_TESTING_SCRIPTED_SOURCE_H_
