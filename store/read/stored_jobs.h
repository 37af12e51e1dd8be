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

// Returns the names of the jobs that have a directory of a step or rules of what is kept, by name. Everything
// else below the root is passed over, and so are directories more than 8 levels deep; but a directory that cannot be
// listed is an error. At most 10,000 directories are looked at: RESOURCE_EXHAUSTED (OVERLOADED).
absl::StatusOr<std::vector<std::string>> FindJobs(Storage& storage);

// Says which step the job has committed last and when, and how many ranks made it if that is not known yet. `steps`:
// those of the job that are committed or damaged. Of a step that storage has failed to tell of, it gives the error, and
// leaves what is known already.
void DescribeStored(const std::vector<StepRecord>& steps, v1::JobSummary& job);

}  // namespace cairn

#endif  // CAIRN_STORE_READ_STORED_JOBS_H_
