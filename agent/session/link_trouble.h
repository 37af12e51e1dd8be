// Says what keeps the agent from its coordinator, to a trainer that waits for it.
#ifndef CAIRN_AGENT_SESSION_LINK_TROUBLE_H_
#define CAIRN_AGENT_SESSION_LINK_TROUBLE_H_

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/duration_text.h"
#include "common/status/reason.h"

namespace cairn {

// Not thread-safe.
class LinkTrouble {
 public:
  explicit LinkTrouble(uint32_t rank) : rank_(rank) {}

  // A call to the coordinator has failed. A refusal is told at once, everything else when it was tried again in vain.
  void Failed(const absl::Status& error, absl::Time now) {
    since_ = std::min(since_, now);
    if (++failures_ >= 2 || IsRefusal(error)) Tell(error, now);
  }
  // The answer to a call that began at `since` is overdue, as beside a coordinator that is frozen: told at once, since
  // the call itself fails only seconds later. `error` says of which coordinator.
  void Silent(const absl::Status& error, absl::Time since, absl::Time now) {
    since_ = std::min(since_, since);
    Tell(error, now);
  }
  // The coordinator has given orders.
  void Over() {
    failures_ = 0;
    since_ = absl::InfiniteFuture();
    told_ = absl::OkStatus();
  }
  // OK while there is none.
  const absl::Status& status() const { return told_; }

 private:
  void Tell(const absl::Status& error, absl::Time now) {
    told_ = Annotate(error,
                     absl::StrCat("rank ", rank_, ": the agent has not heard of its coordinator",
                                  now > since_ ? absl::StrCat(" for ", DurationText(now - since_)) : ""),
                     {{"rank", absl::StrCat(rank_)}});
  }
  static bool IsRefusal(const absl::Status& error) {
    const auto reason = ReasonOf(error);
    return reason == Reason::kRankConflict || reason == Reason::kWorldSizeMismatch || reason == Reason::kRootMismatch ||
           reason == Reason::kBadToken || reason == Reason::kStaleIncarnation || reason == Reason::kBadJobName ||
           reason == Reason::kRankOutOfRange || reason == Reason::kUnsupported;
  }

  const uint32_t rank_;
  int failures_ = 0;  // since the last orders
  absl::Time since_ = absl::InfiniteFuture();
  absl::Status told_;
};

}  // namespace cairn

#endif  // CAIRN_AGENT_SESSION_LINK_TROUBLE_H_
