// Copies the committed checkpoints of a root to a second root, its mirror, behind the commits, and reads them there.
//
// The mirror has the same files below JOB/STEP/ and is a root of its own: every command works on it. What a step at the
// mirror is, follows from the records of both places (mirror_step.h), so a restart goes on where it was.
#ifndef CAIRN_STORE_MIRROR_MIRROR_H_
#define CAIRN_STORE_MIRROR_MIRROR_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "store/mirror/mirror_place.h"
#include "store/mirror/mirror_rule.h"
#include "store/mirror/mirror_step.h"
#include "store/mirror/mirror_view.h"
#include "store/read/checkpoint_store.h"
#include "store/write/attempt_requests.h"
#include "store/write/step_requests.h"

namespace cairn {

struct MirrorOptions {
  // Full names (store/open/place.h) without symbolic links. Agents read files of the mirror by its name; the root's is
  // written into the mirror.
  std::string address;
  std::string root;
  MirrorRule rule;
  MirrorPlace::Open open;
  // Files of deleted copies stay so long after the start: an earlier coordinator's loads may still read them.
  absl::Duration settle = absl::Seconds(20);
  // After an error the next try waits so long, and twice as long after each further one, up to the longest.
  absl::Duration first_retry = absl::Seconds(1);
  absl::Duration longest_retry = absl::Minutes(1);
  // A step that cannot be copied because it is damaged at the root is tried again after `longest_retry`, and after
  // twice as long each further time, up to this.
  absl::Duration step_retry = absl::Hours(1);
  // The mirror answers within this time, or people are told that it does not.
  absl::Duration patience = absl::Seconds(20);
  // Without work the mirror is asked for so often whether it is still there.
  absl::Duration ping = absl::Seconds(30);
  // Pins or tags a step at the root.
  std::function<absl::Status(const std::string& job, const ChangeSteps& mark)> mark_root;
};

// Thread-safe. One thread looks at the jobs, one after the other: it holds the mirror's root lock, and follows the
// root's deletions, pins and tags. Another one copies, one step at a time.
class Mirror {
 public:
  // `root`: what is copied. Both must outlive the mirror, and its threads if Stop returns false.
  Mirror(MirrorOptions options, CheckpointStore& root, const Clock& clock);
  // Must not run while the threads do: call Stop first.
  ~Mirror();
  Mirror(const Mirror&) = delete;
  Mirror& operator=(const Mirror&) = delete;

  const std::string& address() const { return options_.address; }
  // What was seen.
  const MirrorView& view() const { return view_; }

  // Begins to copy what waits of all jobs. RESOURCE_EXHAUSTED (MEMORY_LIMIT): the system refused a thread.
  absl::Status Start();
  // Ends the copy under way, and gives the mirror back. Returns false if storage still holds a thread after
  // `patience`; then nothing that it uses may be destroyed. Idempotent.
  bool Stop(absl::Duration patience);

  // Something of the job may have changed at the root: looks at it soon. Does not block.
  void Look(const std::string& job);

  // The root has deleted these attempts of the job, durably: it is known from here on. Does not block.
  void NoteDeleted(const std::string& job, const std::vector<StoredAttempt>& deleted);

  // While somebody has it, nobody else changes pins, tags and checkpoints of the job at the root: neither a person nor
  // the mirror. Waits for whoever has it. The mirror must outlive it.
  class JobOrder {
   public:
    JobOrder(Mirror& mirror, std::string job);
    ~JobOrder();
    JobOrder(const JobOrder&) = delete;
    JobOrder& operator=(const JobOrder&) = delete;

   private:
    Mirror& mirror_;
    const std::string job_;
  };

  // The methods below wait for the mirror's storage, but for the view.

  // Says whether a save may take a step that only the mirror has, as far as that was seen: does not block.
  // ALREADY_EXISTS (STEP_COMMITTED): the training builds on that step, and `save` does not overwrite.
  // FAILED_PRECONDITION (CHECKPOINT_PINNED): a pin or a tag keeps it.
  absl::Status MayReplace(const std::string& job, const ReserveAttempt& save) const;

  // Deletes, pins or tags a step that only the mirror has, durably; also takes a tag away from such a step. Nothing if
  // the change names no such step. Fails as the DeletionStore does; or, if nobody knows whether the mirror has the
  // step, with the error of its storage.
  absl::StatusOr<std::optional<ChangedSteps>> Change(const std::string& job, const ChangeSteps& change);

  // A person has taken a tag, or the pin if `tag` is empty, from a step at the root: takes it from the copy too. Does
  // not block; call it while the JobOrder is held in which the mark was taken, so that the mirror does not set it
  // again. The wish is kept in memory: a mark that is left because of that only keeps a copy longer.
  void Unmark(const std::string& job, int64_t step, const std::string& tag);

  // MirrorView::IsLatest. Right after the start it waits for the first look at the job, for ten seconds at most; if
  // there was none by then, the log says so.
  bool IsLatest(const std::string& job, int64_t step) const;

  // Returns whether rules may delete the step at the root: the rule wants no copy of it, or its copy is whole. The
  // record of the copy and the lengths of its files are looked at, at most once a minute.
  bool MayRulesDelete(const std::string& job, int64_t step);

  struct Found {
    CheckpointStore::ManifestPtr manifest;
    std::vector<std::pair<int64_t, absl::Status>> passed_over;  // newest first
    // The full name of the job's directory at the mirror; empty for a step of the root.
    std::string directory;
    // While somebody has it, the files of the step are not removed by this mirror.
    std::shared_ptr<const void> hold;
  };
  // Finds the copy of a step: of the commit that the root has, or of one that only the mirror has. NOT_FOUND
  // (NOT_COMMITTED); proven damage; or an error of storage, which says that nobody knows.
  absl::StatusOr<Found> Find(const std::string& job, int64_t step);
  // Finds the latest checkpoint by the records of both places that is whole at one of them. At the root that is a step
  // with all its files, but none of `damaged`; then Found has that step's manifest and an empty directory. With
  // `fallback`, later steps that no place has whole are passed over; else the latest must be the one. Fails as Find.
  absl::StatusOr<Found> FindLatest(const std::string& job, bool fallback, const std::set<int64_t>& damaged);

 private:
  // One at a time changes records of steps that stand at the mirror, or begins to copy a step: a thread, or a call of
  // Change.
  class Turn {
   public:
    // Waits until nobody else has the turn, for `patience` at most.
    Turn(Mirror& mirror, absl::Duration patience);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

    bool mine() const { return mine_; }

   private:
    Mirror& mirror_;
    bool mine_ = false;
  };
  // Marks of a job: steps and tags; an empty tag is the pin.
  using Marks = std::set<std::pair<int64_t, std::string>>;

  void RunLooks();
  void RunCopies();
  void NoteEnd();
  // Looks at the next job. `worked`: there was one.
  absl::Status Work(bool& worked);
  // Takes how a piece of work ended, and waits until the next one.
  void AwaitWork(const absl::Status& status, bool worked);
  // Copies the next step. Returns false if there is none now.
  bool CopyNext(absl::Time& next);
  // Returns the error as people get it.
  absl::Status OfMirror(const absl::Status& status) const;
  absl::Status LookForJobs(const MirrorPlace::Held& held);
  // Returns a job to look at now; nothing if there is none.
  std::optional<std::string> TakeDue();
  // Looks at the job, and does all that is to be done there but copy. What cannot be done does not keep the rest back.
  absl::Status LookAt(const MirrorPlace::Held& held, const std::string& job);
  absl::StatusOr<MirrorRecords> ReadBoth(MirrorPlace::Side& side, const std::string& job);
  // Gives the copies the pins and tags that their steps have at the root. A mark that only the mirror has stays: a
  // person made it there, or the root comes from a backup. If a later commit of its step stands at the root, the mark
  // is made there too, unless it is one of `taken`. Returns the first error.
  absl::Status CopyMarks(const MirrorPlace::Held& held, const std::string& job, const MirrorRecords& records,
                         const Marks& taken);
  absl::Status CopyMark(const MirrorPlace::Held& held, const std::string& job, int64_t step, const std::string& tag);
  // Makes the mark of a step at the mirror at the root too, unless a person has taken it away there meanwhile.
  absl::Status MarkRoot(const std::string& job, int64_t step, const std::string& tag);
  // Takes the marks of Unmark away, and all from copies of deleted steps. `taken`: those of Unmark. Returns the first
  // error.
  absl::Status TakeMarks(const MirrorPlace::Held& held, const std::string& job, const MirrorRecords& records,
                         Marks& taken);
  // Returns the first error.
  absl::Status DeleteOutdated(const MirrorPlace::Held& held, const std::string& job, const MirrorRecords& records,
                              const MirrorWork& work);
  // Looks at the files of the newest copies, for the sake of which older ones are to go. Returns whether all are whole.
  absl::StatusOr<bool> NewestAreWhole(const MirrorPlace::Held& held, const std::string& job,
                                      const MirrorRecords& records);
  // Looks at the files of copies that only the mirror has, of some each time.
  void CheckOnlyThere(const MirrorPlace::Held& held, const std::string& job, const MirrorRecords& records);
  // Puts down what a look at the files of a copy has found: OK, or damage, which the log tells once.
  void NoteChecked(const std::string& job, int64_t step, const absl::Status& whole);
  // Puts the record that deletes a copy. Does nothing while it is the last valid checkpoint of both places, or pinned,
  // or being copied.
  absl::Status DeleteCopy(const MirrorPlace::Held& held, const std::string& job, DeleteStep action);
  // Removes the files of deleted copies that nobody reads, and what was left of copies that are not wanted any more.
  absl::Status Clean(const MirrorPlace::Held& held, const std::string& job, const MirrorRecords& records,
                     const MirrorWork& work);
  absl::Status CleanAttempt(const MirrorPlace::Held& held, const std::string& job, const StepRecord& step,
                            const StoredAttempt& attempt, const MirrorWork& work);
  // Forgets that rules have deleted the attempt there, so that it can be copied again under its number: a pin, or the
  // deletion of a later step, may want it. What is left of its files is gone on with. The caller has the Turn.
  absl::Status ForgetDeleted(const MirrorPlace::Held& held, const std::string& job, int64_t step, uint32_t attempt);
  absl::Status Copy(const MirrorPlace::Held& held, const MirrorView::Copy& copy);
  // Returns `manifest` with a hold on its step. Fails if its step was deleted meanwhile.
  absl::StatusOr<Found> Held(MirrorPlace::Side& side, const std::string& job, int64_t step);
  // Asks the mirror whether it is there, and returns it. STORAGE_STALLED: it does not answer, so that nobody waits for
  // it longer than `patience`. Else fails as MirrorPlace::ToRead.
  absl::StatusOr<std::shared_ptr<MirrorPlace::Side>> ToRead(const std::string& job, absl::Duration patience);
  bool InUse(const std::string& job, int64_t step) const;

  const MirrorOptions options_;
  CheckpointStore& root_;
  const Clock& clock_;
  const absl::Time started_;
  const std::shared_ptr<MirrorPlace> place_;  // shared with a look that storage may hold
  MirrorView view_;
  std::atomic<bool> stop_ = false;
  std::atomic<bool> stop_copy_ = false;  // the copy under way has no lock any more, or the mirror ends
  std::atomic<uint64_t> bytes_done_ = 0;

  // Only for the thread that looks.
  absl::Duration retry_ = absl::ZeroDuration();
  std::string told_;  // the error that the log knows
  bool jobs_found_ = false;
  bool asked_first_ = false;  // a job for which Look was called had the last turn
  // Only for the thread that copies.
  absl::Duration copy_retry_ = absl::ZeroDuration();
  std::string told_copy_;

  mutable Mutex mutex_;
  mutable CondVar changed_;
  std::vector<std::string> due_ ABSL_GUARDED_BY(mutex_);  // jobs to look at; each once
  // Jobs, steps and tags; an empty tag is the pin.
  std::set<std::tuple<std::string, int64_t, std::string>> unmarked_ ABSL_GUARDED_BY(mutex_);
  bool changing_ ABSL_GUARDED_BY(mutex_) = false;          // somebody has the turn
  std::set<std::string> ordered_ ABSL_GUARDED_BY(mutex_);  // the jobs whose JobOrder somebody has
  uint64_t looks_ ABSL_GUARDED_BY(mutex_) = 0;             // pieces of work that have ended
  std::map<std::pair<std::string, int64_t>, std::weak_ptr<const void>> loads_ ABSL_GUARDED_BY(mutex_);
  int running_ ABSL_GUARDED_BY(mutex_) = 0;  // threads
  std::thread looker_;
  std::thread copier_;
  // A question of ToRead, which several may wait for. Storage may hold whoever asks it.
  struct Question {
    Mutex mutex;
    CondVar answered;
    std::optional<absl::StatusOr<std::shared_ptr<MirrorPlace::Side>>> answer ABSL_GUARDED_BY(mutex);
  };
  std::shared_ptr<Question> question_ ABSL_GUARDED_BY(mutex_);
  const std::shared_ptr<std::atomic<int>> asking_ = std::make_shared<std::atomic<int>>(0);
  // Set while a look of MayRulesDelete has not ended.
  const std::shared_ptr<std::atomic<bool>> looking_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace cairn

#endif  // CAIRN_STORE_MIRROR_MIRROR_H_
