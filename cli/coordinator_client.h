// Calls of CheckpointService, as the commands make them.
#ifndef CAIRN_CLI_COORDINATOR_CLIENT_H_
#define CAIRN_CLI_COORDINATOR_CLIENT_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cairn/v1/checkpoint_service.grpc.pb.h"
#include "cli/command.h"
#include "common/rpc/endpoint.h"
#include "common/rpc/token_source.h"

namespace cairn::cli {

class CoordinatorClient {
 public:
  // INVALID_ARGUMENT (BAD_REQUEST): no address was given. UNAUTHENTICATED (BAD_TOKEN): the token file is of no use.
  static absl::StatusOr<std::unique_ptr<CoordinatorClient>> Connect(const CommandContext& context);

  // Calls `method`, for example &v1::CheckpointService::Stub::GetJob. With `patience`, a coordinator that does not
  // answer is tried again for that long: right for calls that are idempotent, which all of them are.
  template <typename Method, typename Request, typename Response>
  absl::Status Call(Method method, const Request& request, Response* response,
                    absl::Duration patience = absl::ZeroDuration(), absl::Duration timeout = absl::Seconds(10)) {
    return Retry(patience, [&](const std::string& token) {
      grpc::ClientContext call;
      PrepareCall(call, timeout, token);
      return CallError((stub_.get()->*method)(&call, request, response), PeerKind::kCoordinator, address_);
    });
  }

 private:
  CoordinatorClient(std::string address, TokenCandidates tokens);
  using TryCall = std::function<absl::Status(const std::string& token)>;
  // Tries `call` until it gives another answer than COORDINATOR_UNREACHABLE, or `patience` is over, or Ctrl-C.
  absl::Status Retry(absl::Duration patience, const TryCall& call);
  // Once with each token that there is, up to the first that is not refused.
  absl::Status TryTokens(const TryCall& call);

  const std::string address_;
  TokenCandidates tokens_;  // the first is the one that was taken last
  const std::unique_ptr<v1::CheckpointService::Stub> stub_;
};

}  // namespace cairn::cli

#endif  // CAIRN_CLI_COORDINATOR_CLIENT_H_
