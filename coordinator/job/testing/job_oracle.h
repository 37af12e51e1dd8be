// Compares what a job has concluded from its events, one by one, with what a look at everything finds.
#ifndef CAIRN_COORDINATOR_JOB_TESTING_JOB_ORACLE_H_
#define CAIRN_COORDINATOR_JOB_TESTING_JOB_ORACLE_H_

#include <cstdint>
#include <map>
#include <string>

#include "coordinator/job/job.h"

namespace cairn {

// Watches one job. It uses what the server uses, and nothing else.
class JobOracle {
 public:
  // Returns what the job has missed; empty if nothing. `layouts` are those that are here. `settled` is the time of the
  // job's last tick, because what time alone brings waits for the next one. Whatever the job has left for the server
  // must have been taken before: what it leaves now, it had missed.
  std::string Missed(Job& job, const LayoutTable& layouts, const Moment& settled);

 private:
  std::string MissedStep(Job& job, const Moment& settled) const;
  std::string MissedOrders(Job& job, const LayoutTable& layouts, const Moment& settled);

  std::map<int, uint64_t> told_;  // by rank: the revision of the orders that this has asked for last
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_JOB_TESTING_JOB_ORACLE_H_
