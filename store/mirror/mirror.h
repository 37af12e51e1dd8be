// Copies the committed checkpoints of a root to a second root, its mirror, behind the commits, and reads them there.
//
// The mirror has the same files below JOB/STEP/ and is a root of its own: every command works on it. All that is known
// of it comes from listing both roots, so a restart goes on where it was.
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
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cairn/v1/checkpoint_service.pb.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "store/mirror/mirror_rule.h"
#include "store/read/checkpoint_store.h"
#include "store/storage/storage.h"
#include "store/write/step_requests.h"

namespace cairn {

struct MirrorOptions {
  // A full name (store/open/place.h): agents read files of the mirror by it.
  std::string address;
  MirrorRule rule;
  // Opens the mirror, and makes it if there is none. It may be called by any thread, and again after an error.
  std::function<absl::StatusOr<std::unique_ptr<Storage>>()> open;
  // Files of deleted copies stay so long after the start: an earlier coordinator's loads may still read them.
  absl::Duration settle = absl::Seconds(20);
  // After an error the next try waits so long, and twice as long after each further one, up to the longest.
  absl::Duration first_retry = absl::Seconds(1);
  absl::Duration longest_retry = absl::Minutes(1);
  // A step that cannot be copied because it is damaged at the root is tried again after so long.
  absl::Duration step_retry = absl::Hours(1);
};

// Thread-safe. One thread does all that changes the mirror, one step at a time, and holds the mirror's root lock while
// it runs. Only Find waits for storage; all else answers from what that thread has seen last.
class Mirror {
 public:
  // This file at a mirror names its root in one line, so that nobody's checkpoints are taken for copies.
  static constexpr char kOwnerPath[] = ".cairn/mirror-of";

  // `root`: what is copied. Both must outlive the mirror, and its thread if Stop returns false.
  Mirror(MirrorOptions options, CheckpointStore& root, const Clock& clock);
  // Must not run while the thread does: call Stop first.
  ~Mirror();
  Mirror(const Mirror&) = delete;
  Mirror& operator=(const Mirror&) = delete;

  const std::string& address() const { return options_.address; }

  // Begins to copy what waits of all jobs. RESOURCE_EXHAUSTED (MEMORY_LIMIT): the system refused the thread.
  absl::Status Start();
  // Ends the copy under way, and gives the mirror back. Returns false if storage still holds the thread after
  // `patience`; then nothing that it uses may be destroyed. Idempotent.
  bool Stop(absl::Duration patience);

  // Something of the job may have changed at the root: looks at it soon.
  void Look(const std::string& job);
  // A person has deleted a step at the root, or its copy is all that there is: deletes the copy as soon as the mirror
  // can be reached. Returns false if there is no copy, as far as that is known. The wish is kept in memory. The record
  // of a deletion at the root, if there is one, outlives a restart.
  bool Delete(const std::string& job, int64_t step, const std::string& cause);

  // True if the rule wants a copy of the step, which is committed at the root, and there is none yet, or nobody knows.
  // Always false for the rule "newest", which passes steps over.
  bool Awaits(const std::string& job, int64_t step) const;
  // The highest attempt of the step at the mirror; 0 if there is none, or it is not known.
  uint32_t HighestAttempt(const std::string& job, int64_t step) const;
  // The highest sequence number of the job's commits at the mirror (lineage.h); 0 if it is not known.
  uint64_t Sequence(const std::string& job) const;

  struct Found {
    CheckpointStore::ManifestPtr manifest;
    std::vector<std::pair<int64_t, absl::Status>> passed_over;  // newest first
    // The full name of the job's directory at the mirror.
    std::string directory;
    // While somebody has it, the files of the step are not removed by this mirror.
    std::shared_ptr<const void> hold;
  };
  // Finds a checkpoint to load from the mirror: `step`, or the latest one that is valid (CheckpointStore::FindValid,
  // with `fallback`). What a person deleted at the root is never found. NOT_FOUND (NOT_COMMITTED); proven damage; or an
  // error of storage, which says that nobody knows whether the mirror has a checkpoint. Blocks.
  absl::StatusOr<Found> Find(const std::string& job, std::optional<int64_t> step, bool fallback);

  // How a step of the root stands here.
  v1::MirroredCheckpoint Describe(const std::string& job, int64_t step) const;
  // Its state for people; without a job, of all jobs.
  v1::Mirror View(const std::string& job) const;
  // The checkpoints that only the mirror has, ascending.
  std::vector<v1::Checkpoint> OnlyThere(const std::string& job) const;

  // Counts since the start, and what waits now: for metrics.
  struct Counts {
    uint64_t steps_copied = 0;
    uint64_t bytes_copied = 0;
    uint64_t failures = 0;
    uint64_t steps_waiting = 0;
    bool reachable = false;
  };
  Counts counts() const;

 private:
  // The mirror's storage. It stays open once it is.
  struct Side {
    explicit Side(std::unique_ptr<Storage> opened) : storage(std::move(opened)), checkpoints(*storage) {}
    const std::unique_ptr<Storage> storage;
    CheckpointStore checkpoints;
  };
  struct Failed {
    uint32_t attempt = 0;
    absl::Status error;
    bool for_good = false;  // another try will hardly help: the step is damaged, or the mirror has another one
    absl::Time next_try;    // others have their turn until then
  };
  // What was seen of a job at the last look.
  struct Seen {
    bool known = false;
    std::map<int64_t, MirrorStep> steps;
    MirrorWork work;
    std::map<int64_t, StoredAttempt> there;       // what is committed at the mirror
    std::map<int64_t, uint32_t> highest_attempt;  // at the mirror
    uint64_t sequence = 0;
    std::map<int64_t, Failed> failed;
    absl::Time next_look = absl::InfiniteFuture();  // unless Look asks for it before
  };
  // All steps of a job, ascending.
  struct Records {
    std::vector<StepRecord> root;
    std::vector<StepRecord> mirror;
  };

  void Run();
  // Does the next piece of work. `worked`: there was some.
  absl::Status Turn(bool& worked);
  // Takes how a turn ended, and waits until the next one.
  void AwaitTurn(const absl::Status& status, bool worked);
  // Returns a job to look at now; nothing if there is none.
  std::optional<std::string> TakeDue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<std::shared_ptr<Side>> Opened();
  // Returns whether the mirror was made for this root; false if nothing stands there yet. FAILED_PRECONDITION
  // (ROOT_IN_USE): it is another root's, or has files and is nobody's mirror.
  absl::StatusOr<bool> BelongsToRoot(Storage& storage) const;
  // Opens the mirror and takes its lock, unless that is done.
  absl::Status Hold();
  absl::StatusOr<Records> ReadBoth(const std::string& job);
  // Puts down what was read, and returns what is to be done.
  MirrorWork Note(const std::string& job, const Records& records);
  // Looks at the job, and does what is to be done there; copies one step at most.
  absl::Status LookAt(const std::string& job);
  // Gives the copies the pins and tags that their steps have at the root.
  absl::Status CopyMarks(const std::string& job, const Records& records);
  absl::Status CopyMark(const std::string& path, bool wanted, bool there);
  // Puts the record that deletes a copy. Does nothing while it is the only valid one, or pinned.
  absl::Status DeleteCopy(const std::string& job, const DeleteStep& action);
  // Removes the files of deleted copies that nobody reads, and what was left of copies that are not wanted any more.
  absl::Status Clean(const std::string& job, const Records& records, const MirrorWork& work);
  absl::Status Copy(const std::string& job, int64_t step);
  // Returns the step to copy next; nothing if none may be tried now.
  std::optional<int64_t> NextCopy(const std::string& job, const MirrorWork& work);
  bool InUse(const std::string& job, int64_t step) const;

  const MirrorOptions options_;
  CheckpointStore& root_;
  const Clock& clock_;
  const absl::Time started_;
  std::atomic<bool> stop_ = false;
  std::atomic<uint64_t> bytes_done_ = 0;

  Mutex open_mutex_;
  std::shared_ptr<Side> side_ ABSL_GUARDED_BY(open_mutex_);

  // The thread's alone.
  std::shared_ptr<Side> held_side_;
  std::unique_ptr<RootLock> lock_;
  uint64_t refreshed_ = 0;
  absl::Duration retry_ = absl::ZeroDuration();
  std::string told_;  // the error that the log knows

  mutable Mutex mutex_;
  CondVar changed_;
  bool jobs_found_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::string> due_ ABSL_GUARDED_BY(mutex_);  // jobs to look at; each once
  absl::Time next_try_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
  bool reachable_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<std::string, Seen> seen_ ABSL_GUARDED_BY(mutex_);
  struct Copying {
    std::string job;
    int64_t step = 0;
    uint64_t bytes_total = 0;
  };
  std::optional<Copying> copying_ ABSL_GUARDED_BY(mutex_);
  std::map<std::pair<std::string, int64_t>, std::string> wishes_ ABSL_GUARDED_BY(mutex_);  // deletions, with causes
  std::map<std::pair<std::string, int64_t>, std::weak_ptr<const void>> loads_ ABSL_GUARDED_BY(mutex_);
  Counts counts_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = true;
  std::thread thread_;
};

}  // namespace cairn

#endif  // CAIRN_STORE_MIRROR_MIRROR_H_
