// Does what people, or the job's policy, want done about steps that have ended. Changes of a job happen one after the
// other: each looks for a valid checkpoint that remains, so two at a time could delete each other's.
#ifndef CAIRN_COORDINATOR_JOB_STEP_CHANGES_H_
#define CAIRN_COORDINATOR_JOB_STEP_CHANGES_H_

#include <cstdint>
#include <list>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "coordinator/decision/job_context.h"
#include "coordinator/job/outcome_book.h"
#include "coordinator/load/loads.h"

namespace cairn {

// Not thread-safe.
class StepChanges {
 public:
  // Takes a change, which begins when those before it have ended. Returns the number that Find wants. A prune by rules
  // that are being carried out already is that one, and so is a dry run by rules that are being looked at.
  // RESOURCE_EXHAUSTED (OVERLOADED): too many wait.
  absl::StatusOr<uint64_t> Ask(ChangeSteps change, const JobContext& context);
  // Returns how the change ended; null while it has not. It is remembered for a minute.
  const absl::StatusOr<ChangedSteps>* Find(uint64_t number) const;

  // Returns what a prune has done so far that has not ended; null if that is nothing, and for other changes.
  const ChangedSteps* SoFar(uint64_t number) const;

  // Begins the next change. A step that a load reads is refused: FAILED_PRECONDITION (CHECKPOINT_IN_USE).
  void Advance(const Loads& loads, const OutcomeBook& outcomes, const JobContext& context);
  // Takes the result of an action. Returns false if it is not the one that was waited for. A prune that has stopped
  // before its end goes on when the changes that wait now have had their turn.
  bool OnChanged(uint64_t ticket, const absl::StatusOr<ChangedSteps>& result, const JobContext& context);

  // Has the job's own policy carried out, but not before `next_try`, unless that waits to be done already.
  void AskToPrune(const JobContext& context, absl::Time next_try = absl::InfinitePast());
  // Has the commits of a step deleted in whose place a later one stands. Nobody waits for that, so it is tried again if
  // storage fails.
  void AskToDeleteReplaced(int64_t step, const JobContext& context);

  bool empty() const { return changes_.empty(); }
  void Forget(absl::Time now);

 private:
  struct Change {
    uint64_t number = 0;
    ChangeSteps action;
    absl::Time next_try = absl::InfinitePast();
    bool ended = false;
    absl::StatusOr<ChangedSteps> result = ChangedSteps();  // of a prune that goes on: what it has done so far
    absl::Time end;
  };

  // OK if the change may begin.
  static absl::Status Check(const ChangeSteps& action, const Loads& loads, const JobContext& context);
  static void End(Change& change, absl::StatusOr<ChangedSteps> result, const JobContext& context);
  absl::StatusOr<uint64_t> Add(ChangeSteps change, const JobContext& context);
  // Adds what an action of a prune has done, which began after the step `after`.
  static void AddTo(ChangedSteps& sum, const ChangedSteps& part, std::optional<int64_t> after);

  std::list<Change> changes_;  // oldest first
  uint64_t last_number_ = 0;
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_JOB_STEP_CHANGES_H_
