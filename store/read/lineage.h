// Says which checkpoints of a job the training still builds on. A training that resumes from step 40 while step 60 is
// committed begins a new line: it builds on 40 and on what it saves itself, and 60 is superseded.
//
// Every manifest names its line, the step and the line from which that line went on, and a sequence number that counts
// the job's commits. The newest commit decides. Its line is current up to its highest step, the line from which that
// one went on is current up to the step where they part, and so on down to the first line. All other checkpoints are
// superseded.
//
// If all checkpoints of a line are deleted, nobody knows any more from which line it went on. Then the training counts
// as building on every step below the line's last known step, of whichever line. Some of those may be superseded, but
// no step on which the training builds is ever taken for superseded.
//
// A save of a training that has loaded nothing joins the line of the newest commit, so it supersedes nothing. The first
// commit of a job begins a line with a random number, by which the histories of two roots can be told apart.
// Checkpoints of versions that knew no lines are line 0, and supersede nothing either.
#ifndef CAIRN_STORE_READ_LINEAGE_H_
#define CAIRN_STORE_READ_LINEAGE_H_

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "common/format/manifest.h"

namespace cairn {

// The checkpoint from which a training has gone on.
struct ResumePoint {
  uint64_t line = 0;  // the line of the checkpoints that the training saves
  int64_t step = 0;
};

// Returns the lineage of a commit, which gets the line `line` if it is the first one of its job.
inline Lineage WithFirstLine(Lineage lineage, uint64_t line) {
  if (lineage.sequence == 1 && !lineage.continues_step.has_value()) lineage.line = line;
  return lineage;
}

// The lineage of a job's committed steps. It is an immutable value.
class JobLineage {
 public:
  struct Commit {
    int64_t step = 0;
    Lineage lineage;
  };

  JobLineage() = default;
  // `commits` has one entry for each committed step, in any order. Takes O(n log n).
  explicit JobLineage(std::vector<Commit> commits);

  // The steps that the newest commit does not build on, ascending.
  const std::set<int64_t>& superseded() const { return superseded_; }
  // The highest step that is not superseded.
  std::optional<int64_t> latest() const { return latest_; }
  // The highest sequence number of a commit; 0 if there is none.
  uint64_t sequence() const;

  // Returns the lineage of the next commit of a training that has resumed from `resumed`; unset: it has loaded nothing.
  Lineage Next(const std::optional<ResumePoint>& resumed) const;
  // Returns the committed steps on which that next commit does not build, ascending. It may replace one of these.
  std::set<int64_t> LeftBehindBy(const std::optional<ResumePoint>& resumed) const;
  // Returns whether `step`, which must be committed, is one of LeftBehindBy. Takes O(n).
  bool LeavesBehind(const std::optional<ResumePoint>& resumed, int64_t step) const;

  // Returns the lineage of a commit of `step` whose record is lost, if the newest of the other commits builds on it:
  // the lineage of the line that contains the step. Nothing if this cannot be told: the step is above all steps on
  // which the newest commit builds, and the job has several lines, so a training may have left the step behind; or the
  // line has no other commit.
  std::optional<Lineage> Recover(int64_t step) const;

 private:
  const Commit* Newest() const;
  // Returns the steps on which a commit of this lineage does not build.
  std::set<int64_t> NotBelow(const Lineage& lineage) const;

  std::vector<Commit> commits_;
  std::set<int64_t> superseded_;
  std::optional<int64_t> latest_;
};

}  // namespace cairn

#endif  // CAIRN_STORE_READ_LINEAGE_H_
