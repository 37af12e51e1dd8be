// What stands below a root: committed checkpoints, aborted attempts, files without a verdict.
#ifndef CAIRN_COMMON_STORAGE_CHECKPOINT_STORE_H_
#define CAIRN_COMMON_STORAGE_CHECKPOINT_STORE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/format/manifest.h"
#include "common/storage/posix.h"

namespace cairn {

// Verdicts above this are not read.
inline constexpr uint64_t kMaxVerdictBytes = uint64_t{1} << 30;

// Reads only. Thread-safe. Everything comes from listing: there is no pointer file that could be stale. Besides the
// errors named, those of PosixStorage.
class CheckpointStore {
 public:
  // `storage` must outlive it.
  explicit CheckpointStore(PosixStorage& storage) : storage_(storage) {}

  struct Attempt {
    int64_t step = 0;
    uint32_t attempt = 0;
    // A verdict stands. Which one, only reading it tells.
    bool verdict = false;
    // Its directory stands.
    bool directory = false;
  };
  // All attempts of a job or of one step, by (step, attempt); empty for an unknown job.
  absl::StatusOr<std::vector<Attempt>> Attempts(std::string_view job);
  absl::StatusOr<std::vector<Attempt>> Attempts(std::string_view job, int64_t step);

  // DATA_LOSS (MANIFEST_CORRUPT, FILE_MISSING), FAILED_PRECONDITION (FORMAT_TOO_NEW).
  absl::StatusOr<Verdict> ReadVerdict(std::string_view job, int64_t step, uint32_t attempt);

  // The manifest of a step, or of the latest committed one.
  // NOT_FOUND (NOT_COMMITTED): the message names the latest committed step, if there is one. A corrupt verdict above
  // the one asked for is an error, never skipped silently.
  absl::StatusOr<Manifest> ReadManifest(std::string_view job, std::optional<int64_t> step);

  struct Committed {
    std::vector<Manifest> manifests;  // by step
    // Verdicts that could not be read.
    std::vector<absl::Status> faults;
  };
  // All committed checkpoints of a job.
  absl::StatusOr<Committed> ListCommitted(std::string_view job);

 private:
  absl::StatusOr<std::optional<Manifest>> ManifestOf(std::string_view job, const std::vector<Attempt>& attempts,
                                                     int64_t step);

  PosixStorage& storage_;
};

}  // namespace cairn

#endif  // CAIRN_COMMON_STORAGE_CHECKPOINT_STORE_H_
