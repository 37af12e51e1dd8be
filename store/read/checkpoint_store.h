// Reads what stands below a root: committed checkpoints, aborted attempts, files without an outcome, and what is
// damaged; and chooses the step that a load takes (checkpoint_choice.cc). The coordinator and every command read
// through it, so they see the same.
#ifndef CAIRN_STORE_READ_CHECKPOINT_STORE_H_
#define CAIRN_STORE_READ_CHECKPOINT_STORE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
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
JobLineage LineageOf(const std::vector<StepRecord>& steps);

// Only reads, but for Recover and RemoveUnfinished. Thread-safe; every method blocks on storage and may fail with its
// errors. Everything comes from listing, so no pointer file can be stale. A record that was read once, damaged or not,
// is remembered by the identity of its file, so a file that was removed and written anew is read anew. A record counts
// as damaged when it was read twice, the second time past all caches, and gave the same bytes. If it gave other bytes,
// that is a STORAGE_ERROR, which is not remembered. So is a record that is listed and, as storage says, not there: a
// client of a network file system may keep old answers, and a job that seems to have no checkpoint would begin anew. A
// fault of one step does not keep the others from being read.
class CheckpointStore {
 public:
  // `storage` must outlive it. A holder of the root's lock gives the time since when it has that: RootLock::began. The
  // unfinished files from before are those of a predecessor.
  explicit CheckpointStore(Storage& storage, absl::Time began = absl::InfinitePast())
      : storage_(storage), began_(began) {}

  Storage& storage() const { return storage_; }

  // Returns the steps that have a directory, ascending; none for an unknown job. INVALID_ARGUMENT (BAD_JOB_NAME). Else
  // the errors of listing the job's directory.
  absl::StatusOr<std::vector<int64_t>> Steps(std::string_view job);

  // Reads a step; kNothing if there is no such step.
  StepRecord ReadStep(std::string_view job, int64_t step);
  // Reads all steps of a job that have an attempt, or unfinished files, ascending. Fails as Steps.
  absl::StatusOr<std::vector<StepRecord>> ReadJob(std::string_view job);
  // Reads those that are committed or damaged; of those in `among`, if it is given, which must ascend.
  absl::StatusOr<std::vector<StepRecord>> ReadCheckpoints(
      std::string_view job, const std::optional<std::vector<int64_t>>& among = std::nullopt);
  // Reads what one attempt's record says now. It does not look for the attempt's directory.
  StoredAttempt ReadAttempt(std::string_view job, int64_t step, uint32_t attempt);

  // Reads the manifest of a step, or of the latest committed one that is not superseded. NOT_FOUND (NOT_COMMITTED): the
  // message names the latest committed step, if there is one, and says what stands of `step`: aborted attempts, files
  // without an outcome. If the step is damaged, it fails with that damage; without `step`, damage above the latest
  // committed step is an error too, so it is never skipped silently. To find the latest one it reads the records of all
  // steps. DATA_LOSS (MANIFEST_CORRUPT, FILE_MISSING), FAILED_PRECONDITION (FORMAT_TOO_NEW).
  absl::StatusOr<Manifest> ReadManifest(std::string_view job, std::optional<int64_t> step);
  // Returns the step that a name means: its number, or that of its tag; nothing for "JOB" and "JOB@latest". Fails as
  // FindTag, or as ReadCheckpoints.
  absl::StatusOr<std::optional<int64_t>> StepOf(const CheckpointName& name);

  // Makes the error NOT_FOUND (NOT_COMMITTED) for `step`, or for the whole job. `stands` says more of the step; `next`
  // says what to do, unless the table of reasons says it.
  static absl::Status NotCommitted(std::string_view job, std::optional<int64_t> step, std::optional<int64_t> latest,
                                   const std::string& stands = "", const std::string& next = "");

  // For those who decide. The methods above read; these choose, and keep what is asked for often.

  // Returns everything about a job, durable; empty for a job that never saved. An outcome that cannot be read counts as
  // damaged, and so does a step's directory that cannot be listed (attempt 0). Nothing else fails because of it.
  // Removes unfinished files that predecessors have left.
  absl::StatusOr<StoredAttempts> Recover(const std::string& job);
  // Returns the same of one step.
  absl::StatusOr<StoredAttempts> RecoverStep(const std::string& job, int64_t step);

  using ManifestPtr = std::shared_ptr<const Manifest>;
  // The same as ReadManifest, but the manifest used last is kept.
  absl::StatusOr<ManifestPtr> SharedManifest(const std::string& job, std::optional<int64_t> step);
  // The newest manifest but those of `except` that can be read at all, no matter what became of its files and of newer
  // steps; null if there is none, and if that one followed the plan `known`: then its record says so, and it is not
  // decoded again.
  absl::StatusOr<ManifestPtr> ReadNewestReadable(const std::string& job, const std::string& known = "",
                                                 const std::set<int64_t>& except = {});

  struct ValidCheckpoint {
    ManifestPtr manifest;
    std::vector<std::pair<int64_t, absl::Status>> passed_over;  // newest first
  };
  // Finds the newest committed step that is not superseded, whose manifest can be read and whose files stand there in
  // their lengths. With `fallback`, steps that are proven to be damaged (see IsProvenDamage) are passed over. Without
  // it, and if the damage is not proven, the error of that step is returned. NOT_FOUND (NOT_COMMITTED). If none of the
  // newest 64 is valid, the error is that of the newest one. `known`, if it is not null, spares reading the records of
  // all steps, as long as storage has no others.
  absl::StatusOr<ValidCheckpoint> FindValid(const std::string& job, bool fallback, const KnownSteps* known = nullptr);

  // The newest step but `except` that is not superseded, whose manifest can be read and whose files stand there in
  // their lengths. Nothing if none of the newest 64 is such, or if the job cannot be listed. It reads the records of
  // all steps.
  std::optional<int64_t> NewestValid(const std::string& job, std::optional<int64_t> except = std::nullopt);

  // The newest committed step below `step` that is not superseded, as its record says: none of its files are looked at.
  // Nothing if there is none, or if the job cannot be listed.
  std::optional<int64_t> CommittedBelow(const std::string& job, int64_t step);
  // Does what NewestValid does for the steps below `below`.
  std::optional<int64_t> ValidBelow(const std::string& job, int64_t below);

  // A manifest's bytes as they stand there.
  struct ManifestBytes {
    int64_t step = 0;
    uint32_t attempt = 0;
    std::shared_ptr<const std::string> bytes;
  };
  // Finds it as ReadManifest does, and checks their checksum. The bytes used last are kept.
  absl::StatusOr<ManifestBytes> ReadManifestBytes(const std::string& job, std::optional<int64_t> step);

  // Returns the step's manifest, if it can be read and its files stand there in their lengths; else why not.
  absl::StatusOr<ManifestPtr> ReadValid(const std::string& job, const StepRecord& step);
  bool IsValid(const std::string& job, int64_t step) { return ReadValid(job, ReadStep(job, step)).ok(); }
  // Removes the unfinished files that earlier holders of the root's lock have left in these steps, in the job's
  // directory and in those above it. A file that cannot be removed is no reason to fail: the next holder tries again.
  void RemoveUnfinished(const std::string& job, const std::vector<StepRecord>& steps);

 private:
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
  // Finds the manifest's file. Fails as ReadManifest.
  absl::StatusOr<ManifestFile> Find(std::string_view job, std::optional<int64_t> step);
  absl::StatusOr<Manifest> Read(std::string_view job, const ManifestFile& file);
  // The steps that are committed and not superseded, or damaged, ascending.
  absl::StatusOr<std::vector<StepRecord>> ReadCurrent(const std::string& job);
  // Does what NewestValid does, among the steps for which `wanted` returns true.
  std::optional<int64_t> NewestValidOf(const std::string& job, absl::FunctionRef<bool(int64_t step)> wanted);
  // The same steps as far as `known` says them; nothing if storage has other checkpoints than these.
  std::optional<std::vector<int64_t>> CurrentOf(const std::string& job, const KnownSteps& known);
  // `current` is that of ReadCurrent. `read` gives the record of one of these steps.
  using StepReader = std::function<StepRecord(int64_t step)>;
  absl::StatusOr<ValidCheckpoint> FindValidIn(const std::string& job, const std::vector<int64_t>& current,
                                              bool fallback, const StepReader& read);
  // The same steps, made durable: the process that put an outcome may have ended before its own fsync. An outcome that
  // cannot be made durable counts as damaged.
  std::vector<StepRecord> Settled(const std::string& job, std::vector<StepRecord> steps);
  absl::StatusOr<ManifestPtr> Share(const std::string& job, const ManifestFile& file);
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
  const absl::Time began_;
  Mutex mutex_;
  std::map<std::string, StoredAttempt> known_ ABSL_GUARDED_BY(mutex_);  // by path
  // The manifests used last, and the files that they came from.
  ManifestFile manifest_file_ ABSL_GUARDED_BY(mutex_);
  ManifestPtr manifest_ ABSL_GUARDED_BY(mutex_);
  ManifestFile bytes_file_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const std::string> bytes_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn

#endif  // CAIRN_STORE_READ_CHECKPOINT_STORE_H_
