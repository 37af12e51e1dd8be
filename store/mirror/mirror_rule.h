// Decides which steps a mirror copies, deletes and cleans up: a function of what stands at the root and at the mirror.
#ifndef CAIRN_STORE_MIRROR_MIRROR_RULE_H_
#define CAIRN_STORE_MIRROR_MIRROR_RULE_H_

#include <cstdint>
#include <set>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "store/read/step_record.h"

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

  // Returns true if a step that is due must get to the mirror, however long that takes.
  bool waits_for_each() const { return steps != Steps::kNewest; }
};

// Reads "all", "newest" or "every:N". INVALID_ARGUMENT (BAD_QUANTITY): the text is none of them, or `keep_last` is
// below 0.
absl::StatusOr<MirrorRule> ParseMirrorRule(std::string_view steps, int64_t keep_last);

// What stands of a step at the root and at the mirror.
struct MirrorStep {
  int64_t step = 0;
  bool at_root = false;          // the root has a checkpoint of it, whole or damaged
  uint32_t attempt = 0;          // the attempt that is committed at the root; 0: none
  bool deleted = false;          // a person deleted it at the root, or wants it deleted at the mirror
  bool superseded = false;       // the training does not build on it
  bool kept = false;             // a pin or a tag keeps it
  uint32_t mirrored = 0;         // the attempt that is committed at the mirror; 0: none
  bool closed = false;           // the mirror has another record in the place of the one of `attempt`
  std::set<uint32_t> half = {};  // attempts of which the mirror has files and no record

  bool is_mirrored() const { return attempt != 0 && mirrored == attempt && !closed; }
};

// Puts the records of a step together. Either may be null: then nothing stands there. `wanted_gone`: a person wants the
// step deleted at the mirror. Whether it is superseded the caller sets.
MirrorStep MirrorStepOf(const StepRecord* root, const StepRecord* mirror, bool wanted_gone);

// Returns true if the last checkpoint that the root had of the step was deleted because a person asked for it.
bool WasDeletedByPerson(const StepRecord& root);

struct MirrorWork {
  std::vector<int64_t> copy;      // in this order: the newest first, superseded ones last
  std::vector<int64_t> follow;    // a person deleted them, ascending
  std::vector<int64_t> outdated;  // beyond MirrorRule::keep_last: at the mirror, oldest first
  std::vector<int64_t> clean;     // the mirror has files of attempts that will not be copied
};

// `steps` ascend. A step that is superseded counts as older than all others. A step is outdated only if so many newer
// ones are at the mirror already, and is not copied if it would be outdated then; a pinned or tagged one is never
// outdated.
MirrorWork WorkOf(const std::vector<MirrorStep>& steps, const MirrorRule& rule);

}  // namespace cairn

#endif  // CAIRN_STORE_MIRROR_MIRROR_RULE_H_
