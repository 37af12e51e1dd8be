#include "cli/coordinator_client.h"

#include <functional>
#include <utility>

#include "absl/time/clock.h"
#include "cli/interrupt.h"
#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/rpc/reason.h"
#include "common/rpc/token.h"

namespace cairn::cli {
absl::StatusOr<std::unique_ptr<CoordinatorClient>> CoordinatorClient::Connect(const CommandContext& context) {
  if (context.coordinator.empty()) {
    return MakeError(Reason::kBadRequest,
                     "no coordinator was given: use --coordinator HOST:PORT or set CAIRN_COORDINATOR");
  }
  CAIRN_ASSIGN_OR_RETURN(std::string token, ReadTokenFile(context.token_file));
  return std::unique_ptr<CoordinatorClient>(new CoordinatorClient(context.coordinator, std::move(token)));
}

CoordinatorClient::CoordinatorClient(std::string address, std::string token)
    : address_(std::move(address)),
      token_(std::move(token)),
      stub_(v1::CheckpointService::NewStub(MakeChannel(address_))) {}

absl::Status CoordinatorClient::Retry(absl::Duration patience, const std::function<absl::Status()>& call) {
  const absl::Time deadline = Clock::Real().SteadyNow() + patience;
  for (;;) {
    const absl::Status status = call();
    if (InterruptFlag()) return MakeError(Reason::kInterrupted, "interrupted");
    if (!HasReason(status, Reason::kCoordinatorUnreachable) || Clock::Real().SteadyNow() >= deadline) return status;
    absl::SleepFor(absl::Milliseconds(300));
  }
}

}  // namespace cairn::cli
