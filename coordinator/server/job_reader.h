// Reads what storage has of every job, for a list of jobs. Storage that hangs at one job does not hold up the list.
#ifndef CAIRN_COORDINATOR_SERVER_JOB_READER_H_
#define CAIRN_COORDINATOR_SERVER_JOB_READER_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "store/read/step_record.h"
#include "store/read/stored_jobs.h"

namespace cairn {

// Thread-safe.
class JobReader {
 public:
  struct Calls {
    // Runs its argument on another thread, which may hang in storage, or never.
    std::function<void(std::function<void()> work)> run;
    // ListJobDirectory, and CheckpointStore::ReadCheckpoints.
    std::function<absl::StatusOr<JobDirectory>(const std::string& directory)> list;
    std::function<absl::StatusOr<std::vector<StepRecord>>(const std::string& job)> read;
  };
  // What `calls` use must outlive the threads that hang.
  explicit JobReader(Calls calls);

  struct Answer {
    absl::Status found;  // if it is not OK, the root itself was not searched, and there may be more jobs
    // By name: the checkpoints of the job, or why nobody can tell them. A directory that cannot be listed counts as a
    // job.
    std::map<std::string, absl::StatusOr<std::vector<StepRecord>>> jobs;
  };
  // Finds and reads the jobs below the root, and reads those in `known`, several at a time. Blocks for `patience` at
  // most. A job that has not been listed or read by then has UNAVAILABLE (STORAGE_STALLED). A thread that hangs at it
  // then is left alone, and as long as it hangs, the job is not asked for again: so calls that are repeated do not take
  // all threads.
  Answer ReadAll(const std::vector<std::string>& known, absl::Duration patience);

 private:
  struct Scan;
  struct Question;
  struct Shared;
  static void Run(const std::shared_ptr<Shared>& shared, const std::shared_ptr<Scan>& scan);

  const std::shared_ptr<Shared> shared_;
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_SERVER_JOB_READER_H_
