// What the mirror's threads have seen of all jobs at both places, for all who ask: loads, saves, rules and people.
#ifndef CAIRN_STORE_MIRROR_MIRROR_VIEW_H_
#define CAIRN_STORE_MIRROR_MIRROR_VIEW_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "cairn/v1/checkpoint_service.pb.h"
#include "common/base/mutex.h"
#include "store/mirror/mirror_job.h"
#include "store/mirror/mirror_rule.h"
#include "store/mirror/mirror_step.h"
#include "store/read/lineage.h"

namespace cairn {

// Counts since the start, and what waits now: for metrics.
struct MirrorCounts {
  uint64_t steps_copied = 0;
  uint64_t bytes_copied = 0;
  uint64_t failures = 0;
  uint64_t steps_waiting = 0;
  bool reachable = false;
};

// Asks for a look at a job soon, because these steps may have changed. Does not block.
using LookSoon = std::function<void(const std::string& job, const std::vector<int64_t>& steps)>;

// Thread-safe. Never waits for storage.
class MirrorView {
 public:
  // `address`: the mirror's full name. What is asked of the mirror is answered within `patience`, or the mirror counts
  // as one that does not answer.
  MirrorView(std::string address, const MirrorRule& rule, absl::Duration patience)
      : address_(std::move(address)), rule_(rule), patience_(patience) {}

  // The mirror answered, or not: then `error` says why.
  void SetReachable(const absl::Status& error);
  // Something is asked of the mirror, until the next of these calls. If that lasts, the mirror counts as one that does
  // not answer: see Trouble.
  void BeginAsking();
  void EndAsking();
  // OK if the last look at the job has succeeded, or there was none and the mirror answers. Else it says why nobody
  // knows what the mirror has of the job now: an error of the mirror's storage, or STORAGE_STALLED.
  absl::Status Trouble(const std::string& job) const;
  // Waits until the job was seen, or the mirror has failed; for `patience` at most.
  void AwaitSeen(const std::string& job, absl::Duration patience) const;

  // MirrorJob::ToRead; nothing for a job that was not seen.
  std::optional<std::vector<int64_t>> ToRead(const std::string& job, absl::Time now) const;
  // MirrorJob::Note. It ignores some steps of a job that was not seen.
  void Note(const std::string& job, MirrorReading reading, absl::Time now);
  // MirrorJob::NoteChanged and NoteAnyChanged. Of a job that was not seen, all is read anyway.
  void NoteChanged(const std::string& job, int64_t step, absl::Time now);
  void NoteAnyChanged(const std::string& job, absl::Time time);
  // Another process may have been the mirror's writer: all jobs are read anew, from `now` on.
  void NoteAnyJobChanged(absl::Time now);
  // Returns what was read of the job, with the changes since, and what is to be done.
  std::pair<MirrorRecords, MirrorWork> RecordsOf(const std::string& job) const;
  // A look at the job has failed at `now`. It is due again after `rest`, and after twice as long each further time, up
  // to `longest`. Returns true if `error` was not known.
  bool NoteUnlooked(const std::string& job, const absl::Status& error, absl::Time now, absl::Duration rest,
                    absl::Duration longest);
  // Puts down what the last look at the job could not do, though it succeeded; OK if it did all. Returns true if that
  // was not known.
  bool NoteUndone(const std::string& job, const absl::Status& error);
  // MirrorJob::NoteDeleted.
  void NoteDeleted(const std::string& job, const StoredAttempt& deleted, absl::Time now);
  // Asks for the job's next look at `time` or before.
  void LookBy(const std::string& job, absl::Time time);
  // Returns the job that is due at `now` for the longest time; nothing if there is none.
  std::optional<std::string> Due(absl::Time now) const;
  // Returns when a look is due next.
  absl::Time NextLook() const;
  // Returns when NextCopy may give something: now if it does, else when a failed copy may be tried again.
  absl::Time NextCopyTime(absl::Time now) const;

  struct Copy {
    std::string job;
    int64_t step = 0;
  };
  // Returns the next step to copy; nothing if none waits that may be tried at `now`. The jobs take turns.
  std::optional<Copy> NextCopy(absl::Time now);
  void BeginCopy(const Copy& copy, uint32_t attempt, uint64_t bytes, const std::atomic<uint64_t>& bytes_done);
  // If `status` is OK, the mirror has that attempt at `now`.
  void EndCopy(const absl::Status& status, absl::Time now);
  bool IsCopyingNow(const std::string& job, int64_t step) const;
  // The attempt cannot be copied at `now`. It is tried again after `rest`, and after twice as long each further time,
  // up to `longest`. `for_good`: another try will hardly help, because the step is damaged at the root, or the mirror
  // has another one.
  void NoteFailure(const Copy& copy, uint32_t attempt, const absl::Status& error, bool for_good, absl::Time now,
                   absl::Duration rest, absl::Duration longest);
  // Somebody has looked at the files of the step's copy, at `now`: it is whole, or `whole` says what is damaged.
  // The log tells damage that was not known.
  void NoteChecked(const Copy& copy, const absl::Status& whole, absl::Time now);
  // Somebody has looked at the files of a copy that only the mirror has, and could not read them.
  void NoteLooked(const Copy& copy, absl::Time now);
  // Returns the steps that only the mirror has and at whose files nobody has looked for hours, ascending.
  std::vector<int64_t> UncheckedOnlyThere(const std::string& job, absl::Time now) const;

  // True if the rule wants a copy of the step, which is committed at the root, and there is none yet, or nobody knows;
  // also while the step is being copied.
  bool Awaits(const std::string& job, int64_t step) const;
  // True if rules may delete the step at the root without a look at its copy: none is wanted, or it was looked at a
  // moment before `now`. False if nobody knows whether what the mirror has is a copy (MirrorStep::by_number).
  bool NeedsNoCheck(const std::string& job, int64_t step, absl::Time now) const;
  // The state of a step; nothing if the job was not seen, or neither place has the step.
  std::optional<MirrorStep> Find(const std::string& job, int64_t step) const;
  bool IsKnown(const std::string& job) const;
  // Returns the step that only the mirror has and that has the tag; nothing if there is none.
  std::optional<int64_t> OnlyThereWithTag(const std::string& job, const std::string& tag) const;
  // True if only the mirror has the step, and the training builds on it if it has resumed from `resumed`.
  bool IsBuiltOnThere(const std::string& job, int64_t step, const std::optional<ResumePoint>& resumed) const;
  // False if `step`, the latest one by the root's records alone, is not the latest by those of both places: the
  // training does not build on it, or only the mirror has a later one. True if the job was not seen.
  bool IsLatest(const std::string& job, int64_t step) const;
  // The lineage of all that stands at the root, or only at the mirror; nothing if the job was not seen.
  std::optional<JobLineage> LineageOfBoth(const std::string& job) const;
  // The highest attempt of the step at the mirror; 0 if there is none, or it is not known.
  uint32_t HighestAttempt(const std::string& job, int64_t step) const;
  // Returns the lineage of a commit that the root is about to make. `lineage` is what it is by the root's records. If a
  // root was lost, the mirror may have later commits, and the one from which the training went on.
  Lineage Continue(const std::string& job, Lineage lineage) const;

  // How a step of the root stands at the mirror, for people.
  v1::MirroredCheckpoint Describe(const std::string& job, int64_t step) const;
  // The mirror's state. There is an error in it if nobody knows what the mirror has of the job.
  v1::Mirror DescribeMirror(const std::string& job) const;
  // The checkpoints that only the mirror has, ascending.
  std::vector<v1::Checkpoint> OnlyThere(const std::string& job) const;
  MirrorCounts counts() const;

 private:
  // A job of which the last look has failed.
  struct Unlooked {
    absl::Status error;
    absl::Time next_try;
    absl::Duration rest;
  };

  // Returns null if the job was not seen, or neither place has a step of it.
  const MirrorJob* Of(const std::string& job) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  MirrorJob* Of(const std::string& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsCopying(const std::string& job, int64_t step) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status TroubleOf(const std::string& job) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string address_;
  const MirrorRule rule_;
  const absl::Duration patience_;
  mutable Mutex mutex_;
  mutable CondVar changed_;
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
  bool reached_ ABSL_GUARDED_BY(mutex_) = false;  // the mirror has answered once
  absl::Time asked_since_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  std::map<std::string, MirrorJob> seen_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Unlooked> unlooked_ ABSL_GUARDED_BY(mutex_);
  // When a job that was not seen has changed last. A first reading that began before may lack the change.
  absl::Time changed_unseen_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  std::set<std::string> empty_ ABSL_GUARDED_BY(mutex_);  // jobs of which neither place has a step
  std::string last_copied_ ABSL_GUARDED_BY(mutex_);      // the job that had its turn last
  struct Copying {
    Copy copy;
    uint32_t attempt = 0;
    uint64_t bytes = 0;
    const std::atomic<uint64_t>* bytes_done = nullptr;
  };
  std::optional<Copying> copying_ ABSL_GUARDED_BY(mutex_);
  MirrorCounts counts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn

#endif  // CAIRN_STORE_MIRROR_MIRROR_VIEW_H_
