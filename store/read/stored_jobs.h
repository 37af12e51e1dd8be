// Finds the jobs that have something below a root.
#ifndef CAIRN_STORE_READ_STORED_JOBS_H_
#define CAIRN_STORE_READ_STORED_JOBS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cairn/v1/monitoring_service.pb.h"
#include "store/read/checkpoint_store.h"
#include "store/storage/storage.h"

namespace cairn {

// Returns the names, sorted, of the jobs that have a directory of a step or a retention policy. It skips everything
// else below the root, and directories more than 8 levels deep. A directory that cannot be listed is an error. At most
// 10,000 directories are looked at: RESOURCE_EXHAUSTED (OVERLOADED).
absl::StatusOr<std::vector<std::string>> FindJobs(Storage& storage);

// Fills in the latest committed step that is not superseded, its time and, if `job` does not have it yet, the number of
// ranks. `steps` are the job's steps that are committed or damaged. If storage has failed to read a step, it sets the
// error; then a last step that `job` already has stays as it is.
void DescribeStored(const std::vector<StepRecord>& steps, v1::JobSummary& job);

}  // namespace cairn

#endif  // CAIRN_STORE_READ_STORED_JOBS_H_
