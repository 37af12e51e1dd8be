// Copies the committed checkpoints of a root to a second root, its mirror, behind the commits, and reads them there.
//
// The mirror has the same files below JOB/STEP/ and is a root of its own: every command works on it. What a step at the
// mirror is, follows from the records of both places (mirror_step.h), so a restart goes on where it was.
#ifndef CAIRN_STORE_MIRROR_MIRROR_H_
#define CAIRN_STORE_MIRROR_MIRROR_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "store/mirror/mirror_changes.h"
#include "store/mirror/mirror_copier.h"
#include "store/mirror/mirror_marks.h"
#include "store/mirror/mirror_place.h"
#include "store/mirror/mirror_reader.h"
#include "store/mirror/mirror_rule.h"
#include "store/mirror/mirror_upkeep.h"
#include "store/mirror/mirror_view.h"
#include "store/mirror/turns.h"
#include "store/read/checkpoint_store.h"
#include "store/read/stored_attempt.h"

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
  MirrorMarks::MarkRoot mark_root;
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

  // Something of the job may have changed at the root: looks at all of it soon. Does not block.
  void Look(const std::string& job);
  // Does the same if only these steps may have changed: the look costs as much as they do.
  void Look(const std::string& job, const std::vector<int64_t>& steps);

  // The root has deleted these attempts of the job, durably: it is known from here on. Does not block.
  void NoteDeleted(const std::string& job, const std::vector<StoredAttempt>& deleted);

  // Whoever changes pins, tags and checkpoints of a job at the root, a person or the mirror, has the turn of the job's
  // name. The mirror must outlive it.
  Turns& orders() { return orders_; }

  MirrorReader& reader() { return reader_; }
  MirrorChanges& changes() { return changes_; }
  MirrorMarks& marks() { return marks_; }

  // MirrorView::IsLatest. Right after the start it waits for the first look at the job, for ten seconds at most; if
  // there was none by then, the log says so.
  bool IsLatest(const std::string& job, int64_t step) const;

 private:
  void RunLooks();
  void RunCopies();
  void NoteEnd();
  // Looks at the next job. `worked`: there was one.
  absl::Status Work(bool& worked);
  // Takes how a piece of work ended, and waits until the next one.
  void AwaitWork(const absl::Status& status, bool worked);
  // Returns the error as people get it.
  absl::Status OfMirror(const absl::Status& status) const;
  absl::Status LookForJobs(const MirrorPlace::Held& held);
  // Returns a job to look at now; nothing if there is none.
  std::optional<std::string> TakeDue();
  // Looks at the job, and does all that is to be done there but copy. What cannot be done does not keep the rest back.
  absl::Status LookAt(const MirrorPlace::Held& held, const std::string& job);

  const MirrorOptions options_;
  CheckpointStore& root_;
  const Clock& clock_;
  const std::shared_ptr<MirrorPlace> place_;  // shared with threads that storage may hold
  MirrorView view_;
  // Its one turn has the empty name: one at a time changes records of steps that stand at the mirror, or begins to copy
  // a step.
  Turns turns_;
  Turns orders_;
  const LookSoon look_;
  MirrorReader reader_;
  MirrorMarks marks_;
  MirrorUpkeep upkeep_;
  MirrorChanges changes_;
  MirrorCopier copier_;
  std::atomic<bool> stop_ = false;

  // Only for the thread that looks.
  absl::Duration retry_ = absl::ZeroDuration();
  std::string told_;  // the error that the log knows
  bool jobs_found_ = false;
  bool asked_first_ = false;  // a job for which Look was called had the last turn

  mutable Mutex mutex_;
  mutable CondVar changed_;
  std::vector<std::string> due_ ABSL_GUARDED_BY(mutex_);  // jobs to look at; each once
  uint64_t looks_ ABSL_GUARDED_BY(mutex_) = 0;            // pieces of work that have ended
  int running_ ABSL_GUARDED_BY(mutex_) = 0;               // threads
  std::thread looking_;
  std::thread copying_;
};

}  // namespace cairn

#endif  // CAIRN_STORE_MIRROR_MIRROR_H_
