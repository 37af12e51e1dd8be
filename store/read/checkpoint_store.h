// Reads what is below a root: committed checkpoints, aborted attempts, files without an outcome, and damaged records.
// It also chooses the step that a load takes (checkpoint_choice.cc). The coordinator and every command use it, so they
// see the same.
#ifndef CAIRN_STORE_READ_CHECKPOINT_STORE_H_
#define CAIRN_STORE_READ_CHECKPOINT_STORE_H_

#include <cstdint>
#include <functional>
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
#include "store/read/attempt_records.h"
#include "store/read/lineage.h"
#include "store/read/step_record.h"
#include "store/storage/storage.h"

namespace cairn {

// Only reads, but for Recover, RemoveUnfinished and KeepIndex. Thread-safe; every method blocks on storage and may fail
// with its errors. Everything comes from listing, so no pointer file can be stale. A record that is listed but cannot
// be found is a STORAGE_ERROR: a client of a network file system may keep old answers, and a job that seems to have no
// checkpoint would begin anew. An error of one step does not keep the others from being read.
class CheckpointStore {
 public:
  // `storage` must outlive the object. `began` is RootLock::began of a caller that holds the root's lock: unfinished
  // files from before that time were left by an earlier holder, and may be removed.
  explicit CheckpointStore(Storage& storage, absl::Time began = absl::InfinitePast())
      : storage_(storage), began_(began), records_(storage) {}

  Storage& storage() const { return storage_; }

  // Returns the steps that have a directory, ascending; none for an unknown job. INVALID_ARGUMENT (BAD_JOB_NAME). Else
  // the errors of listing the job's directory.
  absl::StatusOr<std::vector<int64_t>> Steps(std::string_view job);

  // Reads a step; kNothing if there is no such step.
  StepRecord ReadStep(std::string_view job, int64_t step);
  // Reads all steps of a job that have an attempt, or unfinished files, ascending. Fails as Steps.
  absl::StatusOr<std::vector<StepRecord>> ReadJob(std::string_view job);
  // Does the same for these steps, which must ascend.
  absl::StatusOr<std::vector<StepRecord>> ReadSteps(std::string_view job, const std::vector<int64_t>& steps);
  // Reads the steps that are committed or damaged. With `among`, which must ascend, it reads only these steps.
  absl::StatusOr<std::vector<StepRecord>> ReadCheckpoints(
      std::string_view job, const std::optional<std::vector<int64_t>>& among = std::nullopt);
  // Reads the record of one attempt anew. StoredAttempt::directory is not set.
  StoredAttempt ReadAttempt(std::string_view job, int64_t step, uint32_t attempt) {
    return records_.Read(job, step, attempt, AttemptRecords::Listing());
  }

  // Reads the manifest of a step, or of the latest committed one that is not superseded. NOT_FOUND (NOT_COMMITTED): the
  // message names the latest committed step, if there is one, and what else there is of `step`: aborted attempts, files
  // without an outcome. If the step is damaged, it fails with that damage. Without `step`, damage above the latest
  // committed step is an error too, so it is never skipped silently. To find the latest step it reads the records of
  // all steps. DATA_LOSS (MANIFEST_CORRUPT, FILE_MISSING), FAILED_PRECONDITION (FORMAT_TOO_NEW).
  absl::StatusOr<Manifest> ReadManifest(std::string_view job, std::optional<int64_t> step);
  // Returns the step that a name means: the number in it, or the step that has its tag; nothing for "JOB" and
  // "JOB@latest". Fails as FindTag, or as ReadCheckpoints.
  absl::StatusOr<std::optional<int64_t>> StepOf(const CheckpointName& name);

  // Makes the error NOT_FOUND (NOT_COMMITTED) for `step`, or for the whole job. `stands` is a text on what there is of
  // the step. `next` says what to do; empty: the text of the table of reasons.
  static absl::Status NotCommitted(std::string_view job, std::optional<int64_t> step, std::optional<int64_t> latest,
                                   const std::string& stands = "", const std::string& next = "");

  // The methods above only read. Those below serve decisions: they choose a step, and keep what is often asked for.

  // Returns all attempts of a job, after it has made their records durable; none for a job that never saved. An outcome
  // that cannot be read counts as damaged. A step's directory that cannot be listed counts as a damaged attempt 0. Also
  // removes unfinished files that earlier holders of the root's lock have left.
  absl::StatusOr<StoredAttempts> Recover(const std::string& job);
  // Returns the same of one step.
  absl::StatusOr<StoredAttempts> RecoverStep(const std::string& job, int64_t step);

  using ManifestPtr = std::shared_ptr<const Manifest>;
  // The same as ReadManifest, but the manifest used last is kept.
  absl::StatusOr<ManifestPtr> SharedManifest(const std::string& job, std::optional<int64_t> step);
  // Returns the newest manifest that can be read, whatever is the state of its files and of newer steps; steps in
  // `except` are left out. Null if there is none, or if its record names the plan `known` (a digest): then it is not
  // decoded.
  absl::StatusOr<ManifestPtr> ReadNewestReadable(const std::string& job, const std::string& known = "",
                                                 const std::set<int64_t>& except = {});

  struct ValidCheckpoint {
    ManifestPtr manifest;
    std::vector<std::pair<int64_t, absl::Status>> passed_over;  // newest first
  };
  // Finds the newest committed step that is not superseded, whose manifest can be read and whose files exist with their
  // lengths. With `fallback`, steps that are proven to be damaged (see IsProvenDamage) are passed over. Without
  // `fallback`, or if the damage is not proven, the error of that step is returned. NOT_FOUND (NOT_COMMITTED). If none
  // of the newest 64 is valid, the error is that of the newest one. With `known` (not null) it does not read the
  // records of all steps, as long as storage has no other steps. Steps in `except` are left out.
  absl::StatusOr<ValidCheckpoint> FindValid(const std::string& job, bool fallback, const KnownSteps* known = nullptr,
                                            const std::set<int64_t>& except = {});

  // Returns the newest step but `except` that is not superseded, whose manifest can be read and whose files exist with
  // their lengths. Nothing if none of the newest 64 steps is such a step, or if the job cannot be listed. It reads the
  // records of all steps.
  std::optional<int64_t> NewestValid(const std::string& job, std::optional<int64_t> except = std::nullopt);

  // Returns the newest committed step below `step` that is not superseded. It reads only records, and looks at no other
  // file of the step. Nothing if there is none, or if the job cannot be listed.
  std::optional<int64_t> CommittedBelow(const std::string& job, int64_t step);
  // Does what NewestValid does for the steps below `below`.
  std::optional<int64_t> ValidBelow(const std::string& job, int64_t below);

  struct ManifestBytes {
    int64_t step = 0;
    uint32_t attempt = 0;
    std::shared_ptr<const std::string> bytes;
  };
  // Finds the manifest as ReadManifest does, and checks the checksum of its bytes. The bytes that were returned last
  // are kept.
  absl::StatusOr<ManifestBytes> ReadManifestBytes(const std::string& job, std::optional<int64_t> step);

  // Returns the step's manifest, if it can be read and its files exist with their lengths; else the error.
  absl::StatusOr<ManifestPtr> ReadValid(const std::string& job, const StepRecord& step);
  bool IsValid(const std::string& job, int64_t step) { return ReadValid(job, ReadStep(job, step)).ok(); }
  // AttemptRecords::KeepIndex. For the holder of the root's lock.
  void KeepIndex(const std::string& job) { records_.KeepIndex(job); }
  // Removes the unfinished files that earlier holders of the root's lock have left in these steps, in the job's
  // directory and in the directories above it. It ignores a file that cannot be removed: the next holder tries again.
  void RemoveUnfinished(const std::string& job, const std::vector<StepRecord>& steps);

 private:
  struct ManifestFile {
    int64_t step = 0;
    uint32_t attempt = 0;
    std::string path;  // below the root
    std::string identity;

    bool operator==(const ManifestFile&) const = default;
  };
  static ManifestFile ManifestFileOf(std::string_view job, const StepRecord& committed);
  // Finds the manifest's file. Fails as ReadManifest.
  absl::StatusOr<ManifestFile> Find(std::string_view job, std::optional<int64_t> step);
  // Reads the steps that are damaged, or committed and not superseded; ascending.
  absl::StatusOr<std::vector<StepRecord>> ReadCurrent(const std::string& job);
  // Does what NewestValid does, among the steps for which `wanted` returns true.
  std::optional<int64_t> NewestValidOf(const std::string& job, absl::FunctionRef<bool(int64_t step)> wanted);
  // Returns the numbers of the same steps, from `known`; nothing if storage has other checkpoints than `known`.
  std::optional<std::vector<int64_t>> CurrentOf(const std::string& job, const KnownSteps& known);
  // `current` has the steps of ReadCurrent. `read` returns the record of one of them.
  using StepReader = std::function<StepRecord(int64_t step)>;
  absl::StatusOr<ValidCheckpoint> FindValidIn(const std::string& job, const std::vector<int64_t>& current,
                                              bool fallback, const StepReader& read);
  // Makes the outcomes of the steps durable, because the process that put one may have ended before its fsync. Returns
  // the steps; an outcome that cannot be made durable counts as damaged.
  std::vector<StepRecord> Settled(const std::string& job, std::vector<StepRecord> steps);
  absl::StatusOr<ManifestPtr> Share(const std::string& job, const ManifestFile& file);
  StepRecord ReadListed(std::string_view job, int64_t step, const absl::StatusOr<std::vector<Storage::Entry>>& entries);
  // Lists the directory of `path` anew. Returns false only if the list does not have the path's name; an error of
  // storage counts as true.
  bool IsListed(const std::string& path);
  // STORAGE_ERROR: the path is listed and cannot be opened.
  absl::Status Hidden(std::string_view job, int64_t step, const std::string& path) const;

  Storage& storage_;
  const absl::Time began_;
  AttemptRecords records_;
  Mutex mutex_;
  // The manifests used last, and the files that they came from.
  ManifestFile manifest_file_ ABSL_GUARDED_BY(mutex_);
  ManifestPtr manifest_ ABSL_GUARDED_BY(mutex_);
  ManifestFile bytes_file_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const std::string> bytes_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn

#endif  // CAIRN_STORE_READ_CHECKPOINT_STORE_H_
