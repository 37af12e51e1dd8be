// Tells agents of their saves: by the save itself as long as it is remembered, then by what storage has said.
#ifndef CAIRN_COORDINATOR_JOB_SAVE_ANSWERS_H_
#define CAIRN_COORDINATOR_JOB_SAVE_ANSWERS_H_

#include <string>

#include "cairn/v1/agent_coordination_service.pb.h"
#include "coordinator/decision/job_context.h"
#include "coordinator/job/leftovers.h"
#include "coordinator/job/outcome_book.h"
#include "coordinator/job/recovery.h"
#include "coordinator/save/saves.h"

namespace cairn {

// Names the rank's call, as one who asks the OutcomeBook.
std::string CallerOf(const Member& member, const v1::SaveState& state);

// Looks at the parts of a job that it is given, and changes nothing. Not thread-safe.
class SaveAnswers {
 public:
  // These must outlive it.
  SaveAnswers(const Recovery& recovery, const OutcomeBook& outcomes, const Saves& saves, const Leftovers& leftovers)
      : recovery_(recovery), outcomes_(outcomes), saves_(saves), leftovers_(leftovers) {}

  // Returns whether the call is of an attempt that has its outcome in storage, while `active` is a later attempt of the
  // step.
  bool IsOfEarlierAttempt(const v1::SaveState& state, const Save& active) const;
  // The order for a call that the rank's agent has reported.
  v1::SaveOrder OrderFor(const Member& member, const v1::SaveState& state, const JobContext& context) const;
  // The order for an agent that restarted and asks about a save of which it holds nothing: the outcome, or to wait, or
  // that the save is not known, which is told only if it names no attempt. All ranks get the same outcome. ABORTED is
  // told only if nobody can commit the attempt any more.
  v1::SaveOrder OutcomeFor(const Member& member, const v1::SaveState& asked, const JobContext& context) const;

 private:
  // The order for a call that no save answers.
  v1::SaveOrder OrderFromStorage(const v1::SaveState& state, const JobContext& context) const;

  const Recovery& recovery_;
  const OutcomeBook& outcomes_;
  const Saves& saves_;
  const Leftovers& leftovers_;
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_JOB_SAVE_ANSWERS_H_
