// Says whether a job that starts here has a checkpoint, and which other jobs have some below the same root: a mistyped
// --root or --job would otherwise begin the training anew without a word.
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
  // Other jobs that have one, by name; at most four.
  std::vector<std::string> other_jobs;
  bool more_jobs = false;  // there may be others
};

// Looks for them. It reads few files, however many checkpoints there are: of the job one manifest if its newest step
// is committed, and of each other job its 16 newest steps at most. Fails as CheckpointStore::Steps and FindJobs.
absl::StatusOr<StoredProgress> LookForProgress(Storage& storage, const std::string& job);

// Returns the line for a person whose job has no checkpoint although others have; empty if there is nothing to say.
std::string ProgressNote(const absl::StatusOr<StoredProgress>& found, const std::string& job, const std::string& root);

}  // namespace cairn

#endif  // CAIRN_STORE_READ_STORED_PROGRESS_H_
