// Makes the commands' calls of CheckpointService.
#ifndef CAIRN_CLI_CLIENT_COORDINATOR_CLIENT_H_
#define CAIRN_CLI_CLIENT_COORDINATOR_CLIENT_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cairn/v1/checkpoint_service.grpc.pb.h"
#include "cairn/v1/monitoring_service.grpc.pb.h"
#include "cli/base/command.h"
#include "common/rpc/endpoint.h"
#include "common/rpc/peer_channel.h"
#include "common/rpc/token_source.h"

namespace cairn::cli {

class CoordinatorClient {
 public:
  // Without an address in the context it is the coordinator that `cairn up` or `cairn run` of this user has started
  // here; of several the one that knows `job`, if a job is given. INVALID_ARGUMENT (BAD_REQUEST): there is none, or
  // several are left. UNAUTHENTICATED (BAD_TOKEN): the token file cannot be used.
  static absl::StatusOr<std::unique_ptr<CoordinatorClient>> Connect(const CommandContext& context,
                                                                    const std::string& job = "");

  // Calls `method`, for example &v1::CheckpointService::Stub::GetJob. A coordinator that does not answer is tried again
  // for `patience`. All these calls may be repeated, because they are idempotent. Methods of MonitoringService are
  // called alike.
  template <typename Method, typename Request, typename Response>
  absl::Status Call(Method method, const Request& request, Response* response,
                    absl::Duration patience = absl::ZeroDuration(), absl::Duration timeout = absl::Seconds(10)) {
    return Retry(patience, [&](const std::shared_ptr<grpc::Channel>& channel) {
      grpc::ClientContext call;
      PrepareCall(call, timeout);
      return CallError((StubOf(method, channel).get()->*method)(&call, request, response), ServerRole::kCoordinator,
                       peer_->address());
    });
  }

 private:
  CoordinatorClient(const std::string& address, std::shared_ptr<TokenSource> tokens);
  static absl::StatusOr<std::unique_ptr<CoordinatorClient>> ConnectTo(const CommandContext& context,
                                                                      const std::string& address);
  // Returns the address of the coordinator that Connect takes without one.
  static absl::StatusOr<std::string> FindHere(const CommandContext& context, const std::string& job);
  // The stub that has the method.
  template <typename... Types>
  static std::unique_ptr<v1::CheckpointService::Stub> StubOf(grpc::Status (v1::CheckpointService::Stub::*)(Types...),
                                                             const std::shared_ptr<grpc::Channel>& channel) {
    return v1::CheckpointService::NewStub(channel);
  }
  template <typename... Types>
  static std::unique_ptr<v1::MonitoringService::Stub> StubOf(grpc::Status (v1::MonitoringService::Stub::*)(Types...),
                                                             const std::shared_ptr<grpc::Channel>& channel) {
    return v1::MonitoringService::NewStub(channel);
  }
  using TryCall = std::function<absl::Status(const std::shared_ptr<grpc::Channel>& channel)>;
  // Repeats `call` until it ends otherwise than with COORDINATOR_UNREACHABLE, `patience` is over, or Ctrl-C comes.
  absl::Status Retry(absl::Duration patience, const TryCall& call);
  // Makes the call once, over a connection that stands.
  absl::Status Try(const TryCall& call);

  const std::shared_ptr<TokenSource> tokens_;
  const std::shared_ptr<PeerChannel> peer_;
};

// Refuses --root for a command that shows what a coordinator knows, and says which commands read storage instead.
void RefuseRootToLook(Command& command);
// Refuses --root for a command that changes checkpoints, which only their coordinator does, and says how to start one.
void RefuseRootToChange(Command& command);

// Returns the checkpoints of a job, by ascending step.
absl::StatusOr<std::vector<v1::Checkpoint>> ListCheckpoints(CoordinatorClient& client, const std::string& job);

// Returns the latest committed step; nothing if the job has none.
absl::StatusOr<std::optional<v1::Checkpoint>> LastCommitted(CoordinatorClient& client, const std::string& job);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_CLIENT_COORDINATOR_CLIENT_H_
