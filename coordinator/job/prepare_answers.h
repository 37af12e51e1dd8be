// Knows which trainers wait in `prepare`, and what the others were answered.
#ifndef CAIRN_COORDINATOR_JOB_PREPARE_ANSWERS_H_
#define CAIRN_COORDINATOR_JOB_PREPARE_ANSWERS_H_

#include <cstdint>
#include <string>

#include "common/base/rank_table.h"
#include "coordinator/membership/membership.h"

namespace cairn {

// An answer belongs to one call, by the trainer and its count of calls: so it stays what it is until the trainer has
// heard it, whatever the layouts of other ranks are by then, and also if the agent restarts. Not thread-safe.
class PrepareAnswers {
 public:
  enum class Answer : uint8_t { kNone, kPlan, kError };

  // Returns what the call was answered in which the trainer is; kNone also if it is in none.
  Answer Of(const Member& member) const;
  // Returns whether the trainer is in a call that has no answer yet.
  bool Waits(const Member& member) const { return IsIn(member) && Of(member) == Answer::kNone; }
  // They look at every rank.
  bool AnyWaits(const Membership& members) const;
  bool AllWait(const Membership& members) const;

  // There is a plan, by the layouts that the ranks have now: calls that wait get it.
  void OnPlan(const Membership& members);
  // The same for a call that began since then with the same layout.
  void GivePlan(const Member& member) { Give(member, Answer::kPlan); }
  // The plan is not that of the present layouts any more, because some ranks have called again. A trainer that was
  // answered by it less often than another one is a call behind: if its layout is still that of the plan, it gets it.
  void GivePlanToThoseBehind(const Membership& members);
  // All calls that wait get an error.
  void GiveError(const Membership& members);

  // Grows with each answer.
  uint64_t version() const { return version_; }

 private:
  struct Call {
    uint64_t trainer = 0;
    uint64_t calls = 0;
    Answer answer = Answer::kNone;
    std::string layout;          // of the rank in the last plan
    uint32_t times_of_plan = 0;  // that calls of the rank got that plan
  };
  static bool IsIn(const Member& member) { return member.state.trainer().prepare_calls() > 0; }
  void Give(const Member& member, Answer answer);

  RankTable<Call> calls_;  // that were answered last
  uint64_t version_ = 0;
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_JOB_PREPARE_ANSWERS_H_
