#include "agent/reader/round_ledger.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"

namespace cairn {

RoundLedger::RoundLedger(const v1::ReadPlan& plan) {
  for (const v1::ReadRound& round : plan.rounds()) {
    consumers_.emplace_back(round.consumers().begin(), round.consumers().end());
    for (uint32_t consumer : round.consumers()) released_below_.emplace(consumer, 0);
  }
}

bool RoundLedger::Released(uint32_t round) const {
  return std::all_of(consumers_[round].begin(), consumers_[round].end(),
                     [&](uint32_t consumer) { return released_below_.at(consumer) > round; });
}

std::optional<uint32_t> RoundLedger::NextToRead() const {
  if (all_read() || (read_ >= 2 && !Released(read_ - 2))) return std::nullopt;
  return read_;
}

void RoundLedger::MarkReady(uint32_t round) { read_ = std::max(read_, round + 1); }

void RoundLedger::Release(uint32_t consumer, uint32_t below) {
  const auto released = released_below_.find(consumer);
  if (released != released_below_.end()) released->second = std::max(released->second, std::min(below, read_));
}

RoundLedger::Standing RoundLedger::StandingOf(uint32_t round) const {
  if (round >= read_) return Standing::kNotYet;
  // When all consumers have released this round, its buffer may already hold round + 2.
  return Released(round) ? Standing::kGone : Standing::kReady;
}

absl::Status RoundLedger::CheckConsumer(uint32_t consumer, uint32_t round) const {
  if (round >= rounds()) {
    return MakeError(Reason::kBadRequest, absl::StrCat("round ", round, " of a plan with ", rounds()));
  }
  if (!std::binary_search(consumers_[round].begin(), consumers_[round].end(), consumer)) {
    return MakeError(Reason::kBadRequest, absl::StrCat("rank ", consumer, " receives nothing from round ", round));
  }
  return absl::OkStatus();
}

}  // namespace cairn
