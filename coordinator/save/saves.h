// The saves of one job: those under way, and the last ones that have ended. A step has at most one that is under way.
// Which call of a rank belongs to which save is told in docs/failure_model.md, "Which attempt a call is in".
#ifndef CAIRN_COORDINATOR_SAVE_SAVES_H_
#define CAIRN_COORDINATOR_SAVE_SAVES_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "cairn/v1/agent_coordination_service.pb.h"
#include "coordinator/decision/checkpoint_key.h"
#include "coordinator/decision/job_context.h"
#include "coordinator/membership/news.h"
#include "coordinator/save/save.h"

namespace cairn {

// A function of reports, results and `context.now`. Not thread-safe.
class Saves {
 public:
  // Begins a save of a step that has none under way. No reply is pending any more for earlier ones of the step.
  Save& Begin(int64_t step, const JobContext& context);
  // Returns how many have begun, and how many have ended, since the coordinator's start.
  uint64_t begun() const { return begun_; }
  uint64_t ended() const { return begun_ - running(); }
  // Returns whether as many are under way as may be. Each costs memory for every rank, so further ones wait for one to
  // end.
  bool full() const;

  // The save of the step that is under way, that began last, or that has ended last; null if there is none.
  Save* Active(int64_t step);
  const Save* Active(int64_t step) const;
  Save* Last(int64_t step);
  const Save* Ended(int64_t step) const;
  // The save of which `asked`, an ASKED of the rank, names the attempt or the number; null if there is none.
  const Save* FindAsked(int rank, const v1::SaveState& asked) const;
  // Returns whether there is a save of the step with a higher attempt.
  bool HasLater(int64_t step, uint32_t attempt) const;
  // The ended save that the rank's call took part in, else null.
  const Save* EndedOf(const Member& member, const v1::SaveState& state) const;
  // The ended save that answers the rank's call, else null.
  const Save* EndedFor(const Member& member, const v1::SaveState& state) const;
  // The save with this step or request: the one under way, else the newest. Null if there is none, or if the key names
  // neither.
  const Save* Find(const CheckpointKey& key) const;
  // The save that people are shown first: the oldest one under way, else the newest. Null if there is none.
  const Save* Shown() const;

  // The smallest step of the saves that may commit yet.
  std::optional<int64_t> EarliestUndecided() const;
  // The smallest step whose save is stalled.
  std::optional<int64_t> StalledStep() const;

  // Returns whether a save is under way.
  bool busy() const;
  // Returns how many are under way.
  size_t running() const;
  // Returns when the oldest of these began.
  absl::Time oldest_running() const;
  // Says that the rank's agent has come, is lost, or has another trainer.
  News OnMember(int rank, const JobContext& context);
  // Takes what the member does not speak of any more; see Save::NoteTold.
  void NoteTold(const Member& member, absl::Time now);
  // The rank's trainer hears of the end of the save, if it has ended, by what it asks.
  void Heard(int rank, const v1::SaveState& asked);
  // Gives up those that the key names; all that are under way if it names none.
  void Cancel(const CheckpointKey& key, const JobContext& context);
  // Takes every step that has become possible. There is a step in its news if the end or the state of one save may let
  // another one go on: a later step may commit, or it waits for what has stalled.
  News Advance(const JobContext& context);

  // Returns what ended saves have left in storage, because storage did not answer. Answers each once.
  std::vector<StoredAttempt> TakeLeftovers();
  // Forgets saves that have ended and that no agent speaks of any more, but for the last ones.
  void Forget(const Membership& members);

 private:
  std::list<Save> saves_;  // oldest first
  uint64_t begun_ = 0;
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_SAVE_SAVES_H_
