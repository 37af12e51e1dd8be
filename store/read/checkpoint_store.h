// Reads what stands below a root: committed checkpoints, aborted attempts, files without an outcome, and what is
// damaged. Coordinator, `list`, `show`, `verify`, `export` and `repair` all read through it, so they see the same.
#ifndef CAIRN_STORE_READ_CHECKPOINT_STORE_H_
#define CAIRN_STORE_READ_CHECKPOINT_STORE_H_

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
#include "common/format/checkpoint_path.h"
#include "common/format/manifest.h"
#include "common/format/outcome.h"
#include "store/read/lineage.h"
#include "store/read/stored_attempt.h"
#include "store/storage/storage.h"

namespace cairn {

// Larger outcomes are not read.
inline constexpr uint64_t kMaxOutcomeBytes = uint64_t{1} << 30;

// Returns true for a proof that a checkpoint is damaged: MANIFEST_CORRUPT, FILE_MISSING, FILE_TRUNCATED. Storage that
// did not answer, or a version that is too old to read the record, proves nothing.
bool IsProvenDamage(const absl::Status& status);

// Returns true if storage has failed to tell what stands there (EIO, ESTALE, EACCES, EMFILE ...): the next look may
// find a checkpoint. What is no readable record, such as a link or a version that is too new, is so for everybody who
// looks.
bool IsReadFailure(const absl::Status& status);

// Says what stands of one step.
struct StepRecord {
  enum class State {
    kNothing,    // nothing was ever committed
    kCommitted,  // there is a readable manifest of this place; of several the highest attempt counts
    kDamaged,    // an outcome cannot be read, and no later attempt has a manifest; see deciding()
  };
  int64_t step = 0;
  std::vector<StoredAttempt> attempts;  // ascending
  // True if unfinished files stand there: see Storage::RemoveUnfinished.
  bool unfinished = false;
  // True if anything stands at PinPath, readable or not.
  bool pinned = false;
  // The names for which anything stands at TagPath, readable or not; ascending.
  std::vector<std::string> tags;
  // Says why the step's directory cannot be listed, so that nothing is known of its attempts; OK if it can.
  absl::Status unlisted;
  // True if storage says that there is no such directory.
  bool gone = false;

  State state() const;
  // Says what a person has put there to keep the step from being deleted, a pin or a tag: FAILED_PRECONDITION
  // (CHECKPOINT_PINNED). OK if there is nothing.
  absl::Status Protection(std::string_view job) const;
  // Returns the attempt that makes the step committed, or the damaged one that may have; null if there is neither. A
  // damaged one above a manifest counts if its directory stands: it may be what took the manifest's place, and nobody
  // may get the older bytes without a word. Without a directory it was an abort.
  const StoredAttempt* deciding() const;
  // Says why the step is damaged; OK if it is not.
  absl::Status damage() const;
  // Says why nobody knows whether the step is committed: its damage, if that is a failure to read; else OK.
  absl::Status unread() const;
};

// Returns the lineage of the committed ones of a job's steps. `steps` must be all of them.
CommittedLines LinesOf(const std::vector<StepRecord>& steps);

// Only reads. Thread-safe. Everything comes from listing, so no pointer file can be stale. A record that was read once,
// damaged or not, is remembered by the identity of the file, so a file that was removed and written anew is read anew.
// A record counts as damaged when it was read twice, the second time past the page cache, and gave the same bytes. If
// it gave other bytes, that is a STORAGE_ERROR, which is not remembered. So is a record that is listed and, as storage
// says, not there: a client of a network file system may keep old answers, and a job that seems to have no checkpoint
// would begin anew. A fault of one step does not keep the others
// from being read.
class CheckpointStore {
 public:
  // `storage` must outlive it.
  explicit CheckpointStore(Storage& storage) : storage_(storage) {}

  Storage& storage() const { return storage_; }

  // Returns the steps that have a directory, ascending; none for an unknown job. INVALID_ARGUMENT (BAD_JOB_NAME). Else
  // the errors of listing the job's directory.
  absl::StatusOr<std::vector<int64_t>> Steps(std::string_view job);

  // Reads a step; kNothing if there is no such step.
  StepRecord ReadStep(std::string_view job, int64_t step);
  // Reads all steps of a job that have an attempt, or unfinished files, ascending. Fails as Steps.
  absl::StatusOr<std::vector<StepRecord>> ReadJob(std::string_view job);
  // Reads those that are committed or damaged.
  absl::StatusOr<std::vector<StepRecord>> ReadCheckpoints(std::string_view job);

  // Reads what one attempt's record says now. It does not look for the attempt's directory.
  StoredAttempt ReadAttempt(std::string_view job, int64_t step, uint32_t attempt);

  // Names a file that holds a manifest.
  struct ManifestFile {
    int64_t step = 0;
    uint32_t attempt = 0;
    std::string path;  // below the root
    std::string identity;

    bool operator==(const ManifestFile&) const = default;
  };
  // Returns the manifest's file of a committed step.
  static ManifestFile ManifestFileOf(std::string_view job, const StepRecord& committed);
  // Finds the manifest's file of a step, or of the latest committed one that is not superseded. NOT_FOUND
  // (NOT_COMMITTED): the message names the latest committed step, if there is one, and says what stands of `step`:
  // aborted attempts, files without an outcome. If the step is damaged, it fails with that damage; without `step`,
  // damage above the latest committed step is an error too, so it is never skipped silently. To find the latest one it
  // reads the records of all steps.
  absl::StatusOr<ManifestFile> Find(std::string_view job, std::optional<int64_t> step);
  // Decodes what Find found. DATA_LOSS (MANIFEST_CORRUPT, FILE_MISSING), FAILED_PRECONDITION (FORMAT_TOO_NEW).
  absl::StatusOr<Manifest> Read(std::string_view job, const ManifestFile& file);
  // Returns the bytes of what Find found, after it has checked their checksum. Fails as Read.
  absl::StatusOr<std::string> ReadBytes(const ManifestFile& file);
  // Returns the step that a name means: its number, or that of its tag; nothing for "JOB" and "JOB@latest". Fails as
  // FindTag, or as ReadCheckpoints.
  absl::StatusOr<std::optional<int64_t>> StepOf(const CheckpointName& name);
  // Calls Find, then Read.
  absl::StatusOr<Manifest> ReadManifest(std::string_view job, std::optional<int64_t> step);

  // Makes the error NOT_FOUND (NOT_COMMITTED) for `step`, or for the whole job. `stands` says more of the step; `next`
  // says what to do, unless the table of reasons says it.
  static absl::Status NotCommitted(std::string_view job, std::optional<int64_t> step, std::optional<int64_t> latest,
                                   const std::string& stands = "", const std::string& next = "");

 private:
  absl::StatusOr<StoredAttempt> ReadRecord(std::string_view job, int64_t step, uint32_t attempt,
                                           const std::string& path);
  // The attempt's record according to its deletion; nothing if there is none. A deletion that cannot be read is damage
  // of the attempt: nobody knows what is left of it.
  std::optional<StoredAttempt> ReadDeletion(std::string_view job, int64_t step, uint32_t attempt);
  // Lists the directory of a path anew. Returns whether the path's name stands there, or nobody knows.
  bool IsListed(const std::string& path);
  // STORAGE_ERROR: the path is listed and cannot be opened.
  absl::Status Hidden(std::string_view job, int64_t step, const std::string& path) const;
  // What is remembered of the file at `path`, if it is this one.
  std::optional<StoredAttempt> Known(const std::string& path, const std::string& identity);
  void Remember(const std::string& path, const StoredAttempt& record);
  absl::StatusOr<Outcome> ReadOutcome(std::string_view job, int64_t step, uint32_t attempt, const std::string& path,
                                      StoredFile& file);
  // Returns the bytes of a file once `take` accepts them. If `take` says MANIFEST_CORRUPT it reads them a second time.
  absl::StatusOr<std::string> ReadSurely(const std::string& path, StoredFile& file,
                                         const std::function<absl::Status(const std::string& bytes)>& take);

  Storage& storage_;
  Mutex mutex_;
  std::map<std::string, StoredAttempt> known_ ABSL_GUARDED_BY(mutex_);  // by path
};

}  // namespace cairn

#endif  // CAIRN_STORE_READ_CHECKPOINT_STORE_H_
