// What stands below a root: committed checkpoints, aborted attempts, files without a verdict, and what is damaged. The
// one reader of it: coordinator, `list`, `show`, `verify`, `export` and `repair` all see what this sees.
#ifndef CAIRN_COMMON_STORAGE_CHECKPOINT_STORE_H_
#define CAIRN_COMMON_STORAGE_CHECKPOINT_STORE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/file/posix.h"
#include "common/format/manifest.h"

namespace cairn {

// Verdicts above this are not read.
inline constexpr uint64_t kMaxVerdictBytes = uint64_t{1} << 30;

// Proof that a checkpoint is damaged, as opposed to storage that did not answer, or a version that is too old to tell:
// MANIFEST_CORRUPT, FILE_MISSING, FILE_TRUNCATED.
bool IsProvenDamage(const absl::Status& status);

// What tells a file from every other that had or will have its name.
struct FileIdentity {
  uint64_t device = 0;
  uint64_t inode = 0;
  uint64_t size = 0;
  int64_t modified = 0;  // nanoseconds
  int64_t changed = 0;

  bool operator==(const FileIdentity&) const = default;
};

// What stands of one attempt, in short.
struct AttemptRecord {
  enum class Kind {
    kNone,       // no verdict
    kManifest,   // the commit
    kTombstone,  // the abort
    kDamaged,    // a verdict that cannot be read, or is not this attempt's
  };
  uint32_t attempt = 0;
  Kind kind = Kind::kNone;
  // Its directory stands.
  bool directory = false;
  // The manifest is the one that a repair made of the bins; the verdict is damaged.
  bool repaired = false;
  std::string request_id;
  // What a manifest or a tombstone says.
  absl::Time time = absl::UnixEpoch();
  // What the files of a manifest take, headers included.
  uint64_t bytes = 0;
  uint32_t world_size = 0;
  std::string plan_digest;  // of a manifest
  // Why the attempt was aborted (a tombstone), or what is wrong with the verdict (a damaged one).
  absl::Status error;
  // The file that was read; not set for a damaged one.
  FileIdentity identity;
};

// What stands of one step.
struct StepRecord {
  enum class State {
    kNothing,    // nothing that was ever committed
    kCommitted,  // a readable manifest that says what its path says; of several the highest attempt counts
    kDamaged,    // a verdict that cannot be read, and no manifest
  };
  int64_t step = 0;
  std::vector<AttemptRecord> attempts;  // ascending
  // Names of unfinished files stand there: see PosixStorage::RemoveTemporaries.
  bool temporaries = false;
  // The step's directory cannot be listed: nothing is known of its attempts.
  absl::Status unlisted;

  State state() const;
  // The attempt that makes the step committed, or the highest damaged one; null if there is neither.
  const AttemptRecord* deciding() const;
  // Why the step is damaged; OK if it is not.
  absl::Status damage() const;
};

// Reads only. Thread-safe. Everything comes from listing: there is no pointer file that could be stale. What was read
// once, damaged or not, is remembered by the identity of the file, so one that was removed and written anew is read
// anew. A record is called damaged when it was read twice, the second time past the page cache, and gave the same
// bytes; if it gave others that is a STORAGE_ERROR, which is not remembered. Trouble with one step is that step's
// alone.
class CheckpointStore {
 public:
  // `storage` must outlive it.
  explicit CheckpointStore(PosixStorage& storage) : storage_(storage) {}

  PosixStorage& storage() const { return storage_; }

  // The steps that have a directory, ascending; empty for an unknown job. INVALID_ARGUMENT (BAD_JOB_NAME), and the
  // errors of listing the job's directory.
  absl::StatusOr<std::vector<int64_t>> Steps(std::string_view job);

  // A step; kNothing if there is no such step.
  StepRecord ReadStep(std::string_view job, int64_t step);
  // All steps of a job that have one attempt or more, ascending. As Steps.
  absl::StatusOr<std::vector<StepRecord>> ReadJob(std::string_view job);
  // Those above `after` that are committed or damaged, at most `limit`; nothing beyond the last of them is read.
  absl::StatusOr<std::vector<StepRecord>> ReadCheckpoints(std::string_view job, int64_t after = -1,
                                                          size_t limit = SIZE_MAX);

  // What one attempt's record says now; its directory is not looked for.
  AttemptRecord ReadAttempt(std::string_view job, int64_t step, uint32_t attempt);

  // A file that holds a manifest.
  struct ManifestFile {
    int64_t step = 0;
    uint32_t attempt = 0;
    std::string path;  // below the root
    FileIdentity identity;

    bool operator==(const ManifestFile&) const = default;
  };
  // That of a committed step.
  static ManifestFile ManifestFileOf(std::string_view job, const StepRecord& committed);
  // That of a step, or of the latest committed one.
  // NOT_FOUND (NOT_COMMITTED): the message names the latest committed step, if there is one, and says what stands of
  // `step`: aborted attempts, files without a verdict. The step's damage: one
  // above the latest committed is an error, never skipped silently.
  absl::StatusOr<ManifestFile> Find(std::string_view job, std::optional<int64_t> step);
  // Decodes what Find found. DATA_LOSS (MANIFEST_CORRUPT, FILE_MISSING), FAILED_PRECONDITION (FORMAT_TOO_NEW).
  absl::StatusOr<Manifest> Read(std::string_view job, const ManifestFile& file);
  // The bytes of what Find found, of which the checksum is right. As Read.
  absl::StatusOr<std::string> ReadBytes(const ManifestFile& file);
  // Find and Read.
  absl::StatusOr<Manifest> ReadManifest(std::string_view job, std::optional<int64_t> step);

  // NOT_FOUND (NOT_COMMITTED) for `step`, or for the whole job. `stands`: more to say of the step; `next`: what to do,
  // if it is not what the table of reasons says.
  static absl::Status NotCommitted(std::string_view job, std::optional<int64_t> step, std::optional<int64_t> latest,
                                   const std::string& stands = "", const std::string& next = "");

 private:
  absl::StatusOr<AttemptRecord> ReadRecord(std::string_view job, int64_t step, uint32_t attempt,
                                           const std::string& path);
  absl::StatusOr<Verdict> ReadVerdict(std::string_view job, int64_t step, uint32_t attempt, const std::string& path,
                                      int fd);
  // The bytes of a file that `take` is content with; a second time if it says MANIFEST_CORRUPT. `fd` is the file, open.
  absl::StatusOr<std::string> ReadSurely(const std::string& path, int fd,
                                         const std::function<absl::Status(const std::string& bytes)>& take);

  PosixStorage& storage_;
  Mutex mutex_;
  std::map<std::string, AttemptRecord> known_ ABSL_GUARDED_BY(mutex_);  // by path
};

}  // namespace cairn

#endif  // CAIRN_COMMON_STORAGE_CHECKPOINT_STORE_H_
