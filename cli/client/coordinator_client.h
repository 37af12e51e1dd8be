// Makes the commands' calls to the coordinator.
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

// Thread-safe: several threads may call at a time.
class CoordinatorClient {
 public:
  // Returns a client of the coordinator at the context's address. If the context has no address, it takes the
  // coordinator that this user started on this machine by `cairn up` or `cairn run`. If there are several, it takes the
  // one that knows `job`. INVALID_ARGUMENT (BAD_REQUEST): there is none, or there are several candidates.
  // UNAUTHENTICATED (BAD_TOKEN): the token file cannot be used.
  static absl::StatusOr<std::unique_ptr<CoordinatorClient>> Connect(const CommandContext& context,
                                                                    const std::string& job = "");

  // Calls `method` of CheckpointService or MonitoringService, for example &v1::CheckpointService::Stub::GetJob. If the
  // coordinator does not answer, repeats the call for `patience`. (All these calls are idempotent.) `timeout` limits
  // each single call.
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

  const std::string& address() const { return peer_->address(); }

 private:
  CoordinatorClient(const std::string& address, std::shared_ptr<TokenSource> tokens);
  static absl::StatusOr<std::unique_ptr<CoordinatorClient>> ConnectTo(const CommandContext& context,
                                                                      const std::string& address);
  // Finds the address that Connect uses if the context has none.
  static absl::StatusOr<std::string> FindHere(const CommandContext& context, const std::string& job);
  // Returns a stub of the service that has the method.
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
  // Repeats `call` while it fails with COORDINATOR_UNREACHABLE, until `patience` has passed or the user presses Ctrl-C.
  absl::Status Retry(absl::Duration patience, const TryCall& call);
  // Connects if needed, and makes the call once.
  absl::Status Try(const TryCall& call);

  const std::shared_ptr<TokenSource> tokens_;
  const std::shared_ptr<PeerChannel> peer_;
};

// Refuses --root for a command that only shows a coordinator's state. The error names commands that read storage.
void RefuseRootToLook(Command& command);
// Refuses --root for a command that changes checkpoints, as only a coordinator may. The error says how to start one.
void RefuseRootToChange(Command& command);

// For a command that changes checkpoints of a job that need not run. If the error says that no coordinator was given or
// reached, its next action also says how to start one for this command; else returns it as it is.
absl::Status WithOwnCoordinator(const absl::Status& status);

struct CheckpointList {
  std::vector<v1::Checkpoint> checkpoints;  // by ascending step
  std::optional<v1::Mirror> mirror;         // nothing if the coordinator has none
  std::vector<v1::Checkpoint> only_at_mirror;
};
// Returns the checkpoints of a job, with what the coordinator knows of its mirror.
absl::StatusOr<CheckpointList> ListWithMirror(CoordinatorClient& client, const std::string& job);
// Returns the latest committed checkpoint of root and mirror; null if there is none.
const v1::Checkpoint* LatestOf(const CheckpointList& listed);
// Returns the checkpoints of a job at the root, by ascending step.
absl::StatusOr<std::vector<v1::Checkpoint>> ListCheckpoints(CoordinatorClient& client, const std::string& job);

// Returns the latest committed step; nothing if the job has none.
absl::StatusOr<std::optional<v1::Checkpoint>> LastCommitted(CoordinatorClient& client, const std::string& job);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_CLIENT_COORDINATOR_CLIENT_H_
