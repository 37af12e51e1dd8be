// Decides which steps a mirror copies, deletes and cleans up: a function of what stands at the root and at the mirror.
#ifndef CAIRN_STORE_MIRROR_MIRROR_RULE_H_
#define CAIRN_STORE_MIRROR_MIRROR_RULE_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "store/mirror/mirror_step.h"

namespace cairn {

struct MirrorRule {
  enum class Steps {
    kAll,     // each committed step
    kNewest,  // the newest one, each time a copy has ended: older ones that wait are passed over
    kEvery,   // each step that is divisible by `every`
  };
  Steps steps = Steps::kAll;
  int64_t every = 1;      // of kEvery; above 0
  int64_t keep_last = 0;  // the mirror keeps so many of its newest steps; 0: all

  // Returns true if every step that is due must get to the mirror, however long that takes.
  bool waits_for_each() const { return steps != Steps::kNewest; }
  // Returns true if the step must get there.
  bool Wants(int64_t step) const { return steps == Steps::kAll || (steps == Steps::kEvery && step % every == 0); }
};

// Reads "all", "newest" or "every:N". INVALID_ARGUMENT (BAD_QUANTITY): the text is none of them, or `keep_last` is
// below 0.
absl::StatusOr<MirrorRule> ParseMirrorRule(std::string_view steps, int64_t keep_last);

struct MirrorWork {
  std::vector<int64_t> copy;      // in this order: the newest first, superseded ones last
  std::vector<int64_t> lacking;   // these, and those that the rule wants and that cannot be copied now
  std::vector<int64_t> unwanted;  // MirrorStep::unwanted, ascending
  std::vector<int64_t> outdated;  // beyond MirrorRule::keep_last: at the mirror, oldest first
  std::vector<int64_t> clean;     // the mirror has files of attempts that will not be copied
};

// `steps` ascend. A step that is superseded counts as older than all others. A step is outdated only if so many newer
// ones are at the mirror already, and is not copied if it would be outdated then; a pinned or tagged one is never
// outdated. What cannot be copied does not count, neither among those nor as the newest step.
//
// Where a step at the mirror is superseded, the first commit of the training's present line is copied too if no other
// one of that line is there, whatever `rule.every` says: if the root is lost, the mirror alone must show which line
// counts.
MirrorWork WorkOf(const std::vector<MirrorStep>& steps, const MirrorRule& rule);

}  // namespace cairn

#endif  // CAIRN_STORE_MIRROR_MIRROR_RULE_H_
