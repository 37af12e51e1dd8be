// Says what stands in storage to those who decide: it makes durable what it tells, keeps the manifest used last, and
// chooses the step that a load takes. CheckpointStore reads for it; attempt_store.h writes.
#ifndef CAIRN_STORE_READ_CATALOG_H_
#define CAIRN_STORE_READ_CATALOG_H_

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/format/manifest.h"
#include "store/read/checkpoint_store.h"
#include "store/read/stored_attempt.h"
#include "store/storage/storage.h"

namespace cairn {

// Thread-safe; every method blocks on storage and may fail with its reasons.
class Catalog {
 public:
  // This coordinator took the root at `began`, by the clock of the storage. A predecessor has left the unfinished files
  // from before that.
  explicit Catalog(Storage& storage, absl::Time began = absl::InfinitePast())
      : storage_(storage), store_(storage), began_(began) {}

  Storage& storage() const { return storage_; }

  // Returns everything about a job; empty for a job that never saved. An outcome that cannot be read counts as damaged,
  // and so does a step's directory that cannot be listed (attempt 0). Nothing else fails because of it. Removes
  // unfinished files that predecessors have left.
  absl::StatusOr<StoredAttempts> Recover(const std::string& job);
  // Returns the same of one step.
  absl::StatusOr<StoredAttempts> RecoverStep(const std::string& job, int64_t step);
  // The steps that are committed or damaged, ascending; of those in `among`, if it is given, which must ascend.
  absl::StatusOr<std::vector<StepRecord>> Checkpoints(const std::string& job,
                                                      const std::optional<std::vector<int64_t>>& among = std::nullopt);

  using ManifestPtr = std::shared_ptr<const Manifest>;
  // Returns the manifest of a committed step, or of the latest.
  // NOT_FOUND (NOT_COMMITTED), DATA_LOSS (MANIFEST_CORRUPT).
  absl::StatusOr<ManifestPtr> ReadManifest(const std::string& job, std::optional<int64_t> step);
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
  absl::StatusOr<ManifestBytes> ReadManifestBytes(const std::string& job, std::optional<int64_t> step);

  // Returns whether the step's manifest can be read and its files stand there in their lengths.
  bool IsValid(const std::string& job, int64_t step) { return ReadValid(job, store_.ReadStep(job, step)).ok(); }
  // Removes the unfinished files that earlier holders of the root's lock have left in these steps, in the job's
  // directory and in those above it. A file that cannot be removed is no reason to fail: the next holder tries again.
  void RemoveUnfinished(const std::string& job, const std::vector<StepRecord>& steps);
  // Returns what stands of one step.
  StepRecord ReadStep(const std::string& job, int64_t step) { return store_.ReadStep(job, step); }
  // Returns what one attempt's record says now. It does not look for the attempt's directory.
  StoredAttempt ReadAttempt(const std::string& job, int64_t step, uint32_t attempt) {
    return store_.ReadAttempt(job, step, attempt);
  }

 private:
  // The steps that are committed and not superseded, or damaged, ascending.
  absl::StatusOr<std::vector<StepRecord>> ReadCurrent(const std::string& job);
  // Does what NewestValid does, among the steps for which `wanted` returns true.
  std::optional<int64_t> NewestValidOf(const std::string& job, absl::FunctionRef<bool(int64_t step)> wanted);
  // The same steps as far as `known` says them; nothing if storage has other checkpoints than these.
  std::optional<std::vector<int64_t>> CurrentOf(const std::string& job, const KnownSteps& known);
  // `current` is that of ReadCurrent. `read` gives the record of one of these steps.
  using ReadRecord = std::function<StepRecord(int64_t step)>;
  absl::StatusOr<ValidCheckpoint> FindValidIn(const std::string& job, const std::vector<int64_t>& current,
                                              bool fallback, const ReadRecord& read);
  // The same steps, made durable: the process that put an outcome may have ended before its own fsync. An outcome that
  // cannot be made durable counts as damaged.
  std::vector<StepRecord> Settled(const std::string& job, std::vector<StepRecord> steps);
  absl::StatusOr<ManifestPtr> Decode(const std::string& job, const CheckpointStore::ManifestFile& file);
  // As Decode, and also checks that all its files stand there.
  absl::StatusOr<ManifestPtr> ReadValid(const std::string& job, const StepRecord& step);

  Storage& storage_;
  CheckpointStore store_;
  const absl::Time began_;
  Mutex mutex_;
  // The manifests used last, and the files that they came from.
  CheckpointStore::ManifestFile manifest_file_ ABSL_GUARDED_BY(mutex_);
  ManifestPtr manifest_ ABSL_GUARDED_BY(mutex_);
  CheckpointStore::ManifestFile bytes_file_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const std::string> bytes_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn

#endif  // CAIRN_STORE_READ_CATALOG_H_
