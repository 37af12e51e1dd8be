// What stands in storage: verdicts and attempts, per job. Reads only; attempt_store.h writes.
#ifndef CAIRN_COORDINATOR_SERVER_CATALOG_H_
#define CAIRN_COORDINATOR_SERVER_CATALOG_H_

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/format/manifest.h"
#include "common/storage/posix.h"
#include "coordinator/job/action.h"

namespace cairn {

// Thread-safe; every method blocks on storage and may fail with its reasons.
class Catalog {
 public:
  explicit Catalog(PosixStorage& storage) : storage_(storage) {}

  // Everything about a job; empty for one that never saved.
  absl::StatusOr<Recovered> Recover(const std::string& job);
  // The same of one step.
  absl::StatusOr<Recovered> RecoverStep(const std::string& job, int64_t step);
  // Committed checkpoints, by ascending step.
  absl::StatusOr<std::vector<VerdictSummary>> Committed(const std::string& job);
  // The manifest of a committed step, or of the latest.
  // NOT_FOUND (NOT_COMMITTED), DATA_LOSS (MANIFEST_CORRUPT).
  absl::StatusOr<std::shared_ptr<const Manifest>> ReadManifest(const std::string& job, std::optional<int64_t> step);
  // Its bytes as they stand there.
  struct ManifestBytes {
    int64_t step = 0;
    uint32_t attempt = 0;
    std::shared_ptr<const std::string> bytes;
  };
  absl::StatusOr<ManifestBytes> ReadManifestBytes(const std::string& job, std::optional<int64_t> step);

  struct Step {
    int64_t step = 0;
    std::vector<uint32_t> verdict;    // attempts that have one
    std::vector<uint32_t> directory;  // attempts that have files
  };
  // The attempts of one step; empty if there is none.
  absl::StatusOr<Step> ListStep(const std::string& job, int64_t step);
  // DATA_LOSS (MANIFEST_CORRUPT, FILE_MISSING), FAILED_PRECONDITION (FORMAT_TOO_NEW).
  absl::StatusOr<VerdictSummary> Read(const std::string& job, int64_t step, uint32_t attempt);

 private:
  absl::StatusOr<std::vector<int64_t>> Steps(const std::string& job);
  absl::StatusOr<std::string> ReadBytes(const std::string& job, int64_t step, uint32_t attempt);

  struct Cached {
    uint64_t size = 0;
    int64_t modified = 0;
    VerdictSummary summary;
  };

  PosixStorage& storage_;
  Mutex mutex_;
  std::map<std::string, Cached> cache_ ABSL_GUARDED_BY(mutex_);
  std::string manifest_key_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const Manifest> manifest_ ABSL_GUARDED_BY(mutex_);
  std::string bytes_key_ ABSL_GUARDED_BY(mutex_);
  ManifestBytes bytes_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_SERVER_CATALOG_H_
