// The requests to a DeletionStore and its answers: changes of steps that have ended, by deletions, pins, tags and
// retention rules.
#ifndef CAIRN_STORE_WRITE_STEP_REQUESTS_H_
#define CAIRN_STORE_WRITE_STEP_REQUESTS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "store/read/stored_attempt.h"
#include "store/write/prune_policy.h"

namespace cairn {

// Puts the record by which a committed or damaged step is deleted. Its files stay until RemoveFiles.
struct DeleteStep {
  int64_t step = 0;
  std::string cause;
  bool by_rules = false;  // no person asked for it
  // A valid checkpoint of the job in another root, by which the last one of this root may go.
  std::optional<int64_t> left_elsewhere = std::nullopt;
};
// Deletes the commits of a step that a later commit of the same step has replaced, if the later one is valid. Does
// nothing to a step with a pin or a tag.
struct DeleteReplaced {
  int64_t step = 0;
};
// Puts or removes the pin of a step that is committed or damaged.
struct PinStep {
  int64_t step = 0;
  bool pinned = true;
  std::string note;  // text for people, kept in the pin
};
// Gives a committed or damaged step a name that no other step has; or takes the name from all steps that have it.
struct TagStep {
  std::string tag;
  std::optional<int64_t> step;  // unset: takes it away
};
// Deletes what a policy does not keep, the oldest first: see ChoosePruned. One action ends after
// DeletionStore::kPruneTime, so that a pin, a tag or another rule never waits for the deletion of hundreds of
// checkpoints. The next action goes on.
struct PruneSteps {
  // Unset: the job's own policy, from storage; if it has none, nothing is pruned.
  std::optional<PrunePolicy> policy;
  bool dry_run = false;
  std::vector<int64_t> in_use = {};  // steps that loads use
  // Steps of which the mirror is to have a copy and has none yet. Null: there is no mirror that must have each.
  std::function<bool(int64_t step)> awaits_mirror = nullptr;
  // Is asked right before a step is deleted, and may look at the copy: false keeps the step. Null: nothing is asked.
  std::function<bool(int64_t step)> is_safe_elsewhere = nullptr;
  // The steps to choose from, ascending; unset: all steps of the job.
  std::optional<std::vector<int64_t>> steps = std::nullopt;
  // The last step that the previous action has handled; this one begins behind it.
  std::optional<int64_t> after = std::nullopt;
};
// Sets the job's own policy; an empty one removes it.
struct SetRetention {
  PrunePolicy policy;
};
// A change of steps that have ended. Only one of a job runs at a time, because each decides by the result of those
// before it.
struct ChangeSteps {
  std::variant<DeleteStep, DeleteReplaced, PinStep, TagStep, PruneSteps, SetRetention> change;
  uint64_t ticket = 0;
  // The latest step on which the training builds, as far as the job knows. A deletion looks there first for a valid
  // checkpoint that remains.
  std::optional<int64_t> latest = std::nullopt;
};

struct ChangedSteps {
  // The deleted attempts, including those deleted earlier.
  std::vector<StoredAttempt> deleted;
  // Set by a DeleteStep: the numbers of the attempts that were deleted earlier, ascending.
  std::vector<uint32_t> deleted_before;
  // Set by a PruneSteps: the decision about every checkpoint, the policy that decided, and, if it has stopped before
  // its end, the last step that it handled.
  std::vector<PruneChoice> choices;
  PrunePolicy policy;
  std::optional<int64_t> stopped_after;
  // Set by a PruneSteps that failed after it had deleted something: the error. The choices for the steps that it did
  // not reach do not prune.
  absl::Status ended_by;
  // Set for a DeleteStep: the mirror has a copy, which is deleted too, now or as soon as the mirror can be reached.
  bool mirror_follows = false;
  // Only the mirror had the step, and it was changed there. `deleted` is of the mirror then.
  bool only_at_mirror = false;
  // Set by a TagStep: the steps from which it took the tag.
  std::vector<int64_t> untagged;
};

}  // namespace cairn

#endif  // CAIRN_STORE_WRITE_STEP_REQUESTS_H_
