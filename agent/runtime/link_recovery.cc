#include "agent/runtime/link_recovery.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "common/status/reason.h"

namespace cairn {
namespace {

// A lease ends, storage is mounted, a coordinator that was started anew puts its token where agents look.
bool MayEndByItself(std::optional<Reason> reason, bool was_answered) {
  // After a coordinator has proven itself once, somebody else may have taken its address while it is down.
  if (reason == Reason::kBadToken) return !was_answered;
  return reason == Reason::kRankConflict || reason == Reason::kWorldSizeMismatch || reason == Reason::kRootMismatch;
}

bool IsFinal(std::optional<Reason> reason) {
  return reason == Reason::kStaleIncarnation || reason == Reason::kBadJobName || reason == Reason::kRankOutOfRange;
}

}  // namespace

LinkRecovery::Next LinkRecovery::OnFailed(const absl::Status& error, bool registered, absl::Time now) {
  const auto reason = ReasonOf(error);
  conflict_since_ = MayEndByItself(reason, was_answered_) ? std::min(conflict_since_, now) : absl::InfiniteFuture();
  if (IsFinal(reason) || now - conflict_since_ >= register_timeout_) return {.give_up = true};
  Next next;
  const bool unproven = reason == Reason::kBadToken;
  next.reconnect = reason == Reason::kCoordinatorUnreachable || unproven;
  if (reason == Reason::kNotRegistered || reason == Reason::kStaleEpoch) {
    next.register_again = true;
    next.take_turn = registered;
    if (registered) return next;  // a second refusal pauses
  } else {
    next.tell = std::exchange(told_, std::string(error.message())) != error.message();
    // It may come back to all agents at one instant, which then all try again.
    next.take_turn = !registered && was_answered_ && next.reconnect;
  }
  next.pause = std::exchange(pause_, std::min(2 * pause_, link_limits::kLongestPause));
  return next;
}

bool LinkRecovery::OnAnswered() {
  was_answered_ = true;
  pause_ = link_limits::kFirstPause;
  return !std::exchange(told_, "").empty();
}

}  // namespace cairn
