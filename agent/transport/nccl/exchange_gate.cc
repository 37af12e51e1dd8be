#include "agent/transport/nccl/exchange_gate.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/transport/host_round_fetcher.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {

ExchangeGate::ExchangeGate(const TransferContext& context, std::string plan_digest, const std::string& secret)
    : context_(context),
      plan_digest_(std::move(plan_digest)),
      token_(RoundGate::TokenOf(secret)),
      key_(TransferService::Key::OfLoad(plan_digest_, token_)) {}

ExchangeGate::~ExchangeGate() {
  StopServing();
  Stop(MakeError(Reason::kPlanUnknown, "the exchange has ended"));
}

void ExchangeGate::Serve(const std::vector<uint32_t>& ranks) {
  gate_ = std::make_shared<RoundGate>(ranks);
  context_.transfers.Add(key_, token_, gate_);
}

void ExchangeGate::StopServing() {
  if (gate_ != nullptr) context_.transfers.Remove(key_);
}

void ExchangeGate::Stop(const absl::Status& why) {
  if (gate_ != nullptr) gate_->Stop(why);
}

absl::StatusOr<std::unique_ptr<RoundPace>> ExchangeGate::Pace(uint32_t keeper, const PeerMap& peers) const {
  if (keeper == context_.rank && gate_ != nullptr) return std::make_unique<RoundPace>(keeper, gate_);
  const auto peer = peers.find(keeper);
  if (peer == peers.end()) {
    return MakeError(Reason::kTransportFailed, absl::StrCat("no address of rank ", keeper),
                     {{"rank", absl::StrCat(keeper)}, {"ranks", absl::StrCat(keeper)}});
  }
  const HostRoundFetcherOptions options = {context_.PartIn(plan_digest_, token_)};
  return std::make_unique<RoundPace>(context_.rank, std::make_unique<HostRoundFetcher>(peer->second, options));
}

}  // namespace cairn
