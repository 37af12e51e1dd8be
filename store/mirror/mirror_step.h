// A step as it stands at a root and at the root's mirror, put together from the records of both: pure.
#ifndef CAIRN_STORE_MIRROR_MIRROR_STEP_H_
#define CAIRN_STORE_MIRROR_MIRROR_STEP_H_

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

#include "absl/time/time.h"
#include "store/read/lineage.h"
#include "store/read/step_record.h"

namespace cairn {

struct MirrorStep {
  // What the commit at the mirror is, by the records of the root.
  enum class Copy {
    kNone,       // the mirror has no commit of the step
    kSame,       // the commit that stands at the root
    kOnlyThere,  // nothing stands at the root: rules deleted the step there, or the root was lost
    kDeleted,    // a person deleted this commit at the root, or a later one
    kReplaced,   // the root has, or had, a later commit of the step, which no person deleted
    kOther,      // another commit that hides the root's, or is none of the root's (NamesakeOf), as far as is known
  };

  int64_t step = 0;
  bool at_root = false;       // the root has a checkpoint of it, whole or damaged
  bool known = false;         // the root has a record of it
  uint32_t attempt = 0;       // the attempt that is committed at the root; 0: none
  uint32_t mirrored = 0;      // the attempt that is committed at the mirror; 0: none
  Copy copy = Copy::kNone;    // what that one is
  bool by_number = false;     // Namesake::kUnknown: by the records it may be another commit than `copy` says
  bool closed = false;        // the mirror has another record in the place of the one of `attempt`
  bool kept = false;          // a pin or a tag keeps it, at the root or at the mirror
  bool superseded = false;    // the training does not build on it
  bool unread = false;        // a record at one of the places cannot be read now, so nobody knows what stands there
  bool uncopyable = false;    // files of the commit at the root are damaged; records do not tell, so the caller sets it
  bool copy_damaged = false;  // files of the copy are missing or cut off; the caller sets it too
  bool other_there = false;   // the root has nothing, and never had the commit at the mirror
  bool damaged_there = false;  // the root has nothing, and the record at the mirror is damaged
  std::set<uint32_t> half;     // attempts of which the mirror has files and no record
  // These two describe the commit at the root, else the one at the mirror.
  Lineage lineage;
  absl::Time time = absl::UnixEpoch();

  // Returns true if the mirror has the root's commit, whole.
  bool has_copy() const { return attempt != 0 && copy == Copy::kSame && !copy_damaged; }
  // Returns true if a load may take the step from the mirror.
  bool loadable() const { return !unread && (copy == Copy::kSame || copy == Copy::kOnlyThere); }
  // Returns true if the commit at the mirror must go, because a person deleted it.
  bool unwanted() const { return !unread && copy == Copy::kDeleted; }
  // Returns true if the commit at the mirror was replaced by one that rules have deleted before it was copied. It is
  // all that is left of the step, so it stays; but nobody gets it for the later one.
  bool left_behind() const { return !unread && copy == Copy::kReplaced && !at_root; }
  // Returns true if the root's commit can be copied.
  bool copyable() const { return attempt != 0 && !closed && !uncopyable && !unread; }
};

// What the root's record of the same number says of a commit at the mirror. Numbers alone do not tell, because a root
// that was lost and begins anew begins with 1.
enum class Namesake {
  kNone,     // there is no such record. Later attempts were made above the commit at the mirror, and take its place
  kSame,     // it is of the same commit
  kForeign,  // it is of another one: the mirror's is of a root that was lost
  kUnknown,  // it says only the number: it is damaged, the deletion of a damaged one, or made by a repair
};
Namesake NamesakeOf(const StepRecord& root, const StoredAttempt& mirrored);

// Puts the records of one step together. Either may be null: then nothing stands there. Does not set `superseded`.
MirrorStep MirrorStepOf(const StepRecord* root, const StepRecord* mirror);

// Puts the records of all steps of a job together. Both ascend, and so does the result. The lineage of all steps that
// stand anywhere says which are superseded. Steps that the root does not know are superseded too if their line and that
// of the root's newest commit go back to different first lines: a root was lost, and a training has begun anew.
std::vector<MirrorStep> JoinSteps(const std::vector<StepRecord>& root, const std::vector<StepRecord>& mirror);

// Returns the lineage of all that stands at the root, or only at the mirror.
JobLineage LineageOf(const std::vector<MirrorStep>& steps);

// Returns the step of that number, from steps that ascend; null if there is none.
template <typename Step>
const Step* FindStep(const std::vector<Step>& steps, int64_t step) {
  const auto found =
      std::lower_bound(steps.begin(), steps.end(), step, [](const Step& a, int64_t b) { return a.step < b; });
  return found == steps.end() || found->step != step ? nullptr : &*found;
}

}  // namespace cairn

#endif  // CAIRN_STORE_MIRROR_MIRROR_STEP_H_
