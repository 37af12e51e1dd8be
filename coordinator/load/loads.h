// Decides which calls of load belong together. Every rank calls when it gets there, and its number names the call for
// this rank only (its trainer, and the trainer's count of its calls). Ranks may have given up different numbers of
// calls before, and may have restarted alone. So the calls that are open on all ranks at one time are one operation.
//
// Each rank has at most one call that is open and in no operation: the newest of the trainer that is attached. It joins
// the operation that waits for calls, or opens one. A call that has ended joins nothing and is told its own error, so
// an operation is never ended by a call that had ended before it began. The exception are calls that have a plan when
// this coordinator first hears of them. They were in one operation under an earlier coordinator, and those with the
// same plan belong together.
#ifndef CAIRN_COORDINATOR_LOAD_LOADS_H_
#define CAIRN_COORDINATOR_LOAD_LOADS_H_

#include <cstdint>
#include <list>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cairn/v1/agent_coordination_service.pb.h"
#include "cairn/v1/checkpoint_service.pb.h"
#include "coordinator/decision/job_context.h"
#include "coordinator/decision/shown_ranks.h"
#include "coordinator/load/load.h"
#include "coordinator/membership/news.h"

namespace cairn {

// The loads of one job. A function of reports, results and `context.now`. Not thread-safe.
class Loads {
 public:
  // Takes what the rank's agent has reported.
  News Apply(const Member& member, const JobContext& context);
  // Says that the rank's agent has come, is lost, or has another trainer.
  News OnMember(int rank, const JobContext& context);
  // Takes every step that has become possible. There is a step in its news if an operation has come into another phase.
  News Advance(const JobContext& context);
  void OnPlanned(uint64_t id, uint64_t ticket, const absl::StatusOr<PlannedLoad>& plan, const JobContext& context);
  void OnVerified(uint64_t id, uint64_t ticket, const absl::StatusOr<uint64_t>& tensors, const JobContext& context);
  // Forgets operations that have ended and that no agent speaks of any more, but for the last ones, which people see.
  // Costs a look at every rank.
  void Forget(const Membership& members);

  // The order for a call that the rank's agent has reported.
  v1::LoadOrder OrderFor(const Member& member, const v1::LoadState& state, const JobContext& context) const;
  bool busy() const;
  // Returns how many are under way.
  size_t running() const;
  // Returns how many have ended since the coordinator's start. A call that waited for one of them may then begin, once
  // the members' reports are applied again.
  uint64_t ended() const { return last_id_ - running(); }
  // Returns when the oldest of these began.
  absl::Time oldest_running() const;
  // The steps that loads read or want, as far as they are known.
  std::vector<int64_t> WantedSteps() const;
  // Returns whether a load that has begun reads this step, or may come to read it.
  bool MayRead(int64_t step) const;
  void View(const JobContext& context, const ShownRanks& shown, v1::Job& view) const;
  // Returns the ranks of all loads under way that are worth a look.
  NoteworthyRanks Noteworthy(const JobContext& context) const;

 private:
  struct Call {
    uint64_t trainer = 0;
    uint64_t number = 0;
  };

  const Load* Find(int rank, const v1::LoadState& state) const;
  // Returns whether the call may join or open an operation.
  bool IsNew(const Member& member, const v1::LoadState& state) const;
  // Remembers the calls of a load that has ended.
  void Remember(const Load& load, const Membership& members);

  std::list<Load> loads_;  // oldest first
  uint64_t last_id_ = 0;
  // The newest call of each rank's trainer whose operation has ended, by rank. Trainers count their calls, so older
  // ones need not be remembered.
  std::map<int, Call> newest_;
  // The latest steps in whose files at the root loads have found damage.
  std::set<int64_t> damaged_;
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_LOAD_LOADS_H_
