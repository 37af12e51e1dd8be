// Asks storage to change steps that have ended: deletions, pins, tags and rules; and what it answers.
#ifndef CAIRN_STORE_WRITE_STEP_REQUESTS_H_
#define CAIRN_STORE_WRITE_STEP_REQUESTS_H_

#include <cstdint>
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
};
// Deletes the commits of a step in whose place a later one of the step stands, if that one is valid. Does nothing to a
// step that is pinned.
struct DeleteReplaced {
  int64_t step = 0;
};
// Puts or removes the pin of a step that is committed or damaged.
struct PinStep {
  int64_t step = 0;
  bool pinned = true;
  std::string note;  // stands in the pin, for people
};
// Gives a committed or damaged step a name that no other step has; or takes the name from all steps that have it.
struct TagStep {
  std::string tag;
  std::optional<int64_t> step;  // unset: takes it away
};
// Deletes what a policy does not keep, the oldest first: see ChoosePruned. One action deletes, or looks, for a moment
// only, so that a pin, a tag or another rule never waits behind hundreds of checkpoints; the next one goes on.
struct PruneSteps {
  // Unset: the job's own, which stands in storage. If there is none, nothing is pruned.
  std::optional<PrunePolicy> policy;
  bool dry_run = false;
  std::vector<int64_t> in_use = {};  // steps that loads want
  // The steps to choose from, ascending; unset: all that stand below the root.
  std::optional<std::vector<int64_t>> steps = std::nullopt;
  // Where the action before this one has stopped: the steps up to there had their turn.
  std::optional<int64_t> after = std::nullopt;
};
// Sets the job's own policy; an empty one removes it.
struct SetRetention {
  PrunePolicy policy;
};
// A change of steps that have ended. One is under way at a time, because each looks at what the others leave.
struct ChangeSteps {
  std::variant<DeleteStep, DeleteReplaced, PinStep, TagStep, PruneSteps, SetRetention> change;
  uint64_t ticket = 0;
  // The latest step on which the training builds, as far as the job knows. A deletion looks there first for a valid
  // checkpoint that remains.
  std::optional<int64_t> latest = std::nullopt;
};

// The result of a ChangeSteps.
struct ChangedSteps {
  // The attempts that are deleted now, also those that were before.
  std::vector<StoredAttempt> deleted;
  // A DeleteStep sets this: the numbers of those attempts that were deleted before. They ascend.
  std::vector<uint32_t> deleted_before;
  // A PruneSteps sets these: what becomes, or became, of every checkpoint; the policy that said so; and, if it has
  // stopped before its end, after which step.
  std::vector<PruneChoice> choices;
  PrunePolicy policy;
  std::optional<int64_t> stopped_after;
  // A PruneSteps that could not go on sets this, if it had deleted something before. It says why, and the choices that
  // it did not come to do not prune.
  absl::Status ended_by;
  // A TagStep sets these: the steps from which it took the name.
  std::vector<int64_t> untagged;
};

}  // namespace cairn

#endif  // CAIRN_STORE_WRITE_STEP_REQUESTS_H_
