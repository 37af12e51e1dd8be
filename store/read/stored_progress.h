// Finds out whether a job that starts has a checkpoint and, if not, which other jobs below the root have one. Otherwise
// a mistyped --root or --job would begin the training anew without notice.
#ifndef CAIRN_STORE_READ_STORED_PROGRESS_H_
#define CAIRN_STORE_READ_STORED_PROGRESS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "store/storage/storage.h"

namespace cairn {

struct StoredProgress {
  // The job has a committed or damaged checkpoint. The rest is looked for only if it has none.
  bool has_checkpoint = false;
  // The names of other jobs that have a checkpoint, sorted; at most four.
  std::vector<std::string> other_jobs;
  bool more_jobs = false;  // there may be others
};

// Looks for checkpoints. It reads few files, however many checkpoints there are: one manifest of the job if its newest
// step is committed, and at most the 16 newest steps of each other job. Fails as CheckpointStore::Steps and FindJobs.
absl::StatusOr<StoredProgress> LookForProgress(Storage& storage, const std::string& job);

// Returns the line for a person whose job has no checkpoint although others have; empty if there is nothing to say.
std::string ProgressNote(const absl::StatusOr<StoredProgress>& found, const std::string& job, const std::string& root);

}  // namespace cairn

#endif  // CAIRN_STORE_READ_STORED_PROGRESS_H_
