// What was seen of one job at a root and at the root's mirror, and what follows from it for the mirror's work, for
// loads and for saves: pure.
#ifndef CAIRN_STORE_MIRROR_MIRROR_JOB_H_
#define CAIRN_STORE_MIRROR_MIRROR_JOB_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "store/mirror/mirror_rule.h"
#include "store/mirror/mirror_step.h"
#include "store/read/lineage.h"
#include "store/read/step_record.h"

namespace cairn {

// All steps of a job, ascending.
struct MirrorRecords {
  std::vector<StepRecord> root;
  std::vector<StepRecord> mirror;
};

// What was read of a job.
struct MirrorReading {
  absl::Time began;
  std::optional<std::vector<int64_t>> steps;  // what was read, ascending; unset: all steps
  MirrorRecords records;                      // of these; what is not there stands at neither place
};

// Not thread-safe.
class MirrorJob {
 public:
  // `address`: the mirror's full name, for messages.
  MirrorJob(std::string job, std::string address, const MirrorRule& rule)
      : job_(std::move(job)), address_(std::move(address)), rule_(rule) {}

  // Puts down at `now` what was read. What NoteDeleted and NoteCopied have said after it began counts more, and so does
  // all of a reading that began later. The job is due again after a while.
  void Note(MirrorReading reading, absl::Time now);
  // Returns the steps that a look at `now` is to read, ascending: those that may have changed since they were read.
  // Nothing: all steps, because somebody else may have changed any of them.
  std::optional<std::vector<int64_t>> ToRead(absl::Time now) const;
  // Something may have changed the records of the step, at `now`.
  void NoteChanged(int64_t step, absl::Time now) { changed_[step] = now; }
  // Something may have changed the records of any step: the next look is at `time` or before, and from then on it reads
  // all.
  void NoteAnyChanged(absl::Time time) {
    all_by_ = std::min(all_by_, time);
    LookBy(time);
  }
  // The root has lost this commit, at `now`: a person has deleted it, or rules have. `deleted` is its record.
  void NoteDeleted(const StoredAttempt& deleted, absl::Time now);
  // The mirror has this commit of the root's, whole, at `now`.
  void NoteCopied(int64_t step, uint32_t attempt, absl::Time now);
  // The attempt cannot be copied at `now`. It is tried again after `rest`, and after twice as long each further time,
  // up to `longest`. `for_good`: another try will hardly help, because the step is damaged at the root, or the mirror
  // has another one.
  void NoteFailure(int64_t step, uint32_t attempt, const absl::Status& error, bool for_good, absl::Time now,
                   absl::Duration rest, absl::Duration longest);
  // Somebody has looked at the files of the step's copy, at `now`: it is whole, or `whole` says what is damaged.
  // Returns true if the damage was not known.
  bool NoteChecked(int64_t step, const absl::Status& whole, absl::Time now);
  // What NoteChecked and NoteLooked have said is void: other files may stand there now.
  void ForgetChecks() {
    damaged_.clear();
    checked_.clear();
    looked_.clear();
  }
  // Somebody has looked at the files of a copy that only the mirror has, and could not read them.
  void NoteLooked(int64_t step, absl::Time now) { looked_[step] = now; }
  // Puts down what the last look could not do, though it succeeded; OK if it did all. Returns true if that was not
  // known.
  bool NoteUndone(const absl::Status& error);
  // Asks for the next look at `time` or before.
  void LookBy(absl::Time time) { next_look_ = std::min(next_look_, time); }
  absl::Time next_look() const { return next_look_; }

  const MirrorRecords& records() const { return records_; }
  // The steps of both places, ascending; none if neither place has one.
  const std::vector<MirrorStep>& steps() const { return steps_; }
  // Returns null if neither place has the step.
  const MirrorStep* Find(int64_t step) const { return FindStep(steps_, step); }
  // The lineage of all that stands at the root, or only at the mirror.
  const JobLineage& lineage() const { return lineage_; }
  const MirrorWork& work() const { return work_; }
  // Returns the next step to copy; nothing if none waits that may be tried at `now`.
  std::optional<int64_t> NextCopy(absl::Time now) const;
  // Returns when NextCopy may give something: now if it does, else when a failed copy may be tried again.
  absl::Time NextCopyTime(absl::Time now) const;
  // Returns the steps that only the mirror has and at whose files nobody has looked for hours, ascending.
  std::vector<int64_t> UncheckedOnlyThere(absl::Time now) const;

  // See MirrorView::Awaits and NeedsNoCheck. `is_told`: the mirror answers.
  bool Awaits(int64_t step, bool is_told) const;
  bool NeedsNoCheck(int64_t step, bool is_told, absl::Time now) const;
  // See the methods of MirrorView.
  std::optional<int64_t> OnlyThereWithTag(const std::string& tag) const;
  bool IsBuiltOnThere(int64_t step, const std::optional<ResumePoint>& resumed) const;
  bool IsLatest(int64_t step) const;
  uint32_t HighestAttempt(int64_t step) const;
  Lineage Continue(Lineage lineage) const;

  struct Failed {
    uint32_t attempt = 0;
    absl::Status error;
    bool for_good = false;
    absl::Time next_try;
    absl::Duration rest;
    bool is_closed = false;  // MirrorStep::closed; the next look says whether it still is
  };
  // By step, what could not be copied.
  const std::map<int64_t, Failed>& failed() const { return failed_; }
  // By step, what only the mirror has.
  const std::map<int64_t, StepRecord>& only_there() const { return only_there_; }
  // MirrorStep::damaged_there and other_there: people see them, and nobody loads them.
  const std::map<int64_t, StepRecord>& useless_there() const { return useless_there_; }
  // Says what is damaged of the step's copy; OK if nothing is known of that.
  absl::Status DamageOf(int64_t step) const;
  // What NoteUndone has said since the last look.
  const absl::Status& undone() const { return undone_; }

 private:
  struct Damaged {
    uint32_t attempt = 0;
    absl::Status error;
  };
  // A change that this process has made, which a look that began before may not have read.
  struct Change {
    int64_t step = 0;
    StoredAttempt attempt;
    bool at_root = false;  // else at the mirror
    absl::Time time;
  };

  // Works out what follows from the records, at `now`.
  void Join(absl::Time now);
  // Puts the change into the records, and keeps it until a look has read it.
  void Take(Change change);
  // Returns false if the records do not have the attempt that was deleted, so that there is nothing to say.
  static bool Apply(const Change& change, MirrorRecords& records);

  const std::string job_;
  const std::string address_;
  const MirrorRule rule_;
  MirrorRecords records_;
  std::vector<MirrorStep> steps_;
  JobLineage lineage_;
  MirrorWork work_;
  std::map<int64_t, StepRecord> only_there_;
  std::map<int64_t, StepRecord> useless_there_;
  std::map<int64_t, uint32_t> highest_attempt_;  // at the mirror
  uint64_t sequence_ = 0;                        // of its commits
  std::map<int64_t, Failed> failed_;
  std::map<int64_t, Damaged> damaged_;     // copies that are damaged
  std::map<int64_t, absl::Time> checked_;  // when somebody has found a copy whole
  std::map<int64_t, absl::Time> looked_;   // when somebody has looked at a copy that only the mirror has
  absl::Status undone_;
  std::vector<Change> changes_;  // the latest last
  absl::Time next_look_ = absl::InfiniteFuture();
  absl::Time all_by_ = absl::InfinitePast();  // the next look reads all from then on
  absl::Time began_ = absl::InfinitePast();   // MirrorReading::began of the last one
  std::map<int64_t, absl::Time> changed_;     // steps that may have changed, and when the last change was
};

}  // namespace cairn

#endif  // CAIRN_STORE_MIRROR_MIRROR_JOB_H_
