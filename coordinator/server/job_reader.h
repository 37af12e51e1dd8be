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
#include "store/read/step_record.h"
#include "store/read/stored_jobs.h"

namespace cairn {

// Thread-safe. No method blocks. Storage is asked by kThreads threads at a time. A thread that hangs in storage when
// its scan is given up is left alone, and another one may take its place, up to kMostThreads in all: the pool also has
// saves to serve. As long as it hangs, nobody asks for its job again.
class JobReader {
 public:
  static constexpr size_t kThreads = 2;
  static constexpr size_t kMostThreads = 3;

  struct Calls {
    // Runs its argument on another thread, later.
    std::function<void(std::function<void()> work)> run;
    // ListJobDirectory, and CheckpointStore::ReadCheckpoints.
    std::function<absl::StatusOr<JobDirectory>(const std::string& directory)> list;
    std::function<absl::StatusOr<std::vector<StepRecord>>(const std::string& job)> read;
  };
  // What `calls` use must outlive the threads that hang.
  explicit JobReader(Calls calls);

  struct Answer {
    absl::Status found;  // if it is not OK, the root was not searched as a whole, and there may be more jobs
    // By name: the checkpoints of the job, or why nobody can tell them. A directory that cannot be listed counts as a
    // job.
    std::map<std::string, absl::StatusOr<std::vector<StepRecord>>> jobs;
  };
  using Done = std::function<void(Answer)>;
  // One search for all jobs, and what storage has of them.
  struct Scan;

  // Makes a scan, which also reads the jobs in `known`.
  static std::shared_ptr<Scan> MakeScan(const std::vector<std::string>& known);
  // Begins the scan. `done` is called once: when all was read, or by GiveUp.
  void Begin(const std::shared_ptr<Scan>& scan, Done done);
  // Ends the scan with what was read so far; ignored if it has ended. All else has UNAVAILABLE (STORAGE_STALLED).
  void GiveUp(const std::shared_ptr<Scan>& scan);

 private:
  struct Shared;
  static void Run(const std::shared_ptr<Shared>& shared);
  static void Start(const std::shared_ptr<Shared>& shared, size_t threads);

  const std::shared_ptr<Shared> shared_;
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_SERVER_JOB_READER_H_
