// Finds the jobs that have something below a root.
#ifndef CAIRN_STORE_READ_STORED_JOBS_H_
#define CAIRN_STORE_READ_STORED_JOBS_H_

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cairn/v1/monitoring_service.pb.h"
#include "store/read/checkpoint_store.h"
#include "store/storage/storage.h"

namespace cairn {

// A search looks at this many directories at most.
inline constexpr size_t kMostJobDirectories = 10'000;

// What stands in one directory below a root. The root itself is "", and is no job.
struct JobDirectory {
  bool is_job = false;             // it has a directory of a step, or a retention policy
  std::vector<std::string> below;  // the directories in it that may be jobs or hold some
};
// Lists one directory of a search for jobs, which begins at "". There is nothing in a directory that has gone
// meanwhile, and no job in another root. Directories more than 8 levels deep are left out. Fails as Storage::List.
absl::StatusOr<JobDirectory> ListJobDirectory(Storage& storage, const std::string& directory);

struct FoundJobs {
  std::vector<std::string> names;  // sorted
  // The directories that could not be listed, so that each may be a job, or have jobs below it.
  std::map<std::string, absl::Status> unlisted;
};
// Searches the whole root. It fails if the root itself cannot be listed. RESOURCE_EXHAUSTED (OVERLOADED): there are
// more directories than kMostJobDirectories.
absl::StatusOr<FoundJobs> LookForJobs(Storage& storage);
// Returns the names of these jobs. A directory that could not be listed is an error.
absl::StatusOr<std::vector<std::string>> FindJobs(Storage& storage);

// Fills in the latest committed step that is not superseded, its time and, if `job` does not have it yet, the number of
// ranks. `steps` are the job's steps that are committed or damaged. If storage has failed to read a step, it sets the
// error; then a last step that `job` already has stays as it is.
void DescribeStored(const std::vector<StepRecord>& steps, v1::JobSummary& job);
// Does the same with what reading a job has given. If that is an error, what is known of other jobs is worth telling
// all the same, so the error becomes that of `job`.
void DescribeRead(const absl::StatusOr<std::vector<StepRecord>>& steps, v1::JobSummary& job);

}  // namespace cairn

#endif  // CAIRN_STORE_READ_STORED_JOBS_H_
