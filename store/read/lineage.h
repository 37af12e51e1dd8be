// Says which checkpoints of a job the training still builds on. A training that resumes from step 40 while step 60 is
// committed begins a new line: it builds on 40 and on what it saves itself, and 60 is superseded.
//
// Every manifest names its line, the step and the line from which that line went on, and a sequence number that counts
// the job's commits. The newest commit decides. Its line is current up to its highest step, the line from which that
// one went on is current up to the step where they part, and so on down to the first line. All else is superseded.
//
// If all checkpoints of a line are deleted, nobody knows any more from which line it went on. Then what lies below its
// last known step counts as built upon, whichever line it is of: it may be a superseded one, but what the training
// builds on is never taken for superseded.
//
// A save of a training that has loaded nothing joins the line of the newest commit. So it supersedes nothing, and nor
// does what versions wrote that know no lines: those checkpoints are the line 0.
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
  uint64_t line = 0;  // of the checkpoints that the training saves
  int64_t step = 0;
};

// The lineage of a job's committed steps. It is an immutable value.
class JobLineage {
 public:
  struct Commit {
    int64_t step = 0;
    Lineage lineage;
  };

  JobLineage() = default;
  // `commits`: one of each committed step, in any order. Takes O(n log n).
  explicit JobLineage(std::vector<Commit> commits);

  // The steps that the newest commit does not build on, ascending.
  const std::set<int64_t>& superseded() const { return superseded_; }
  // The highest step that is not superseded.
  std::optional<int64_t> latest() const { return latest_; }
  // The highest number that a commit has; 0 if there is none.
  uint64_t sequence() const;

  // The lineage of a commit that is made now by a training which has gone on from there, or has loaded nothing.
  Lineage Next(const std::optional<ResumePoint>& resumed) const;
  // The committed steps on which such a commit does not build, ascending. It may take the place of one of these.
  std::set<int64_t> LeftBehindBy(const std::optional<ResumePoint>& resumed) const;
  // Returns whether the committed step `step` is one of these. Takes O(n).
  bool LeavesBehind(const std::optional<ResumePoint>& resumed, int64_t step) const;

  // The lineage of a commit of `step` whose record is lost, if the newest commit of the others builds on it: that of
  // the line which goes over the step. Nothing if nobody can tell: the step lies above all on which the newest commit
  // builds, and the job has several lines, so a training may have left it behind; or the line has no other commit.
  std::optional<Lineage> Recover(int64_t step) const;

 private:
  const Commit* Newest() const;
  // The steps on which a commit of this lineage does not build.
  std::set<int64_t> NotBelow(const Lineage& lineage) const;

  std::vector<Commit> commits_;
  std::set<int64_t> superseded_;
  std::optional<int64_t> latest_;
};

}  // namespace cairn

#endif  // CAIRN_STORE_READ_LINEAGE_H_
