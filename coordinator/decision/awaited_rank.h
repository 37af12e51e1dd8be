// What an operation sees of a rank's agent and trainer while it waits for the rank to begin.
#ifndef CAIRN_COORDINATOR_DECISION_AWAITED_RANK_H_
#define CAIRN_COORDINATOR_DECISION_AWAITED_RANK_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"
#include "coordinator/membership/counted_ranks.h"
#include "coordinator/membership/membership.h"
#include "coordinator/timeline/operation_timeline.h"

namespace cairn {

// Not thread-safe.
class AwaitedRank {
 public:
  void SeeAgent() { agent_seen_ = true; }
  // `member`, the rank's agent, has reported.
  void SeeTrainer(const Member& member, absl::Time now) {
    const v1::TrainerState& trainer = member.state.trainer();
    if (trainer.attached()) {
      TakeCall(trainer.incarnation());
      trainer_ = trainer.incarnation();
      trainer_gone_ = absl::InfiniteFuture();
    } else if (trainer_ != 0) {
      trainer_gone_ = std::min(trainer_gone_, now);
    }
  }
  // This trainer has called, or may call.
  void TakeCall(uint64_t trainer) { successor_ = successor_ || (trainer_ != 0 && trainer_ != trainer); }

  bool agent_seen() const { return agent_seen_; }
  // The trainer that was seen last; 0 for none.
  uint64_t trainer() const { return trainer_; }
  // The time since which the rank has no trainer; never, if it has one or none was seen.
  absl::Time trainer_gone() const { return trainer_gone_; }
  // True if that trainer took the place of another one that was waited for before.
  bool successor() const { return successor_; }

 private:
  bool agent_seen_ = false;
  uint64_t trainer_ = 0;
  absl::Time trainer_gone_ = absl::InfiniteFuture();
  bool successor_ = false;
};

// Is called before an operation ends because ranks or trainers were lost. A trainer that took the place of a lost one
// is released, so that its call begins a new operation. `Rank` is what the operation knows of a rank: it has an
// AwaitedRank `awaited`.
template <typename Rank>
void ReleaseSuccessors(CountedRanks<Rank>& ranks, OperationTimeline& timeline) {
  for (size_t i = ranks.NextKept(0); i < ranks.size(); i = ranks.NextKept(i + 1)) {
    if (!ranks[i].awaited.successor()) continue;
    timeline.Forget(static_cast<int>(i));
    ranks.Change(i, [](Rank& rank) {
      const AwaitedRank awaited = rank.awaited;
      rank = Rank();
      rank.awaited = awaited;
    });
  }
}

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_DECISION_AWAITED_RANK_H_
