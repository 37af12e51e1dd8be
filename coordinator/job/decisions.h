// Makes the decisions of a coordinator for some of its jobs: the server has one of these, with a lock, for each job.
// The server around it owns the bytes, the clock, the storage and the connections.
#ifndef CAIRN_COORDINATOR_JOB_DECISIONS_H_
#define CAIRN_COORDINATOR_JOB_DECISIONS_H_

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "coordinator/job/job.h"
#include "coordinator/membership/layout_table.h"

namespace cairn {

// Not thread-safe: the server calls it under a lock, and executes the actions outside of the lock.
class Decisions {
 public:
  // `layouts` are those of all jobs.
  explicit Decisions(const DecisionOptions& options,
                     std::shared_ptr<LayoutTable> layouts = std::make_shared<LayoutTable>())
      : options_(options), layouts_(std::move(layouts)) {}
  Decisions(const Decisions&) = delete;
  Decisions& operator=(const Decisions&) = delete;

  const DecisionOptions& options() const { return options_; }

  // Returns the moment of an event that comes at `now`, which is ListeningClock::Running: the time in which the
  // coordinator itself was stopped does not count, because the silence is nobody's fault. If `now` is before that of an
  // earlier event, it is that one's.
  Moment At(absl::Time now, absl::Time wall);

  // Makes the job if it is new. INVALID_ARGUMENT (BAD_JOB_NAME).
  absl::StatusOr<Job*> JobFor(const std::string& name, const Moment& moment);
  // Returns null if there is no job of this name.
  Job* Find(const std::string& name);

  // Lets time pass for all jobs. The caller does this every few hundred milliseconds.
  void Tick(absl::Time now, absl::Time wall);

  LayoutTable& layouts() { return *layouts_; }
  // The bytes of a layout have come. Tells every job.
  void AddLayout(const std::string& digest, uint64_t bytes, const Moment& moment);
  // As AddLayout, of a layout that is in the table already.
  void OnLayout(const std::string& digest, const Moment& moment);

  // Lets go of the oldest save plan of the first job that keeps one for saves to come. False if none does.
  bool ReleaseOldestPlan();

  // Says for how long in all the coordinator was too busy to listen: that time counts against no lease.
  void set_deaf(absl::Duration deaf) { deaf_ = deaf; }

  // Returns whether there is no job.
  bool empty() const { return jobs_.empty(); }
  bool busy() const;
  std::vector<CoreAction> TakeActions() { return std::exchange(effects_.actions, {}); }
  std::vector<LogEvent> TakeLog() { return std::exchange(effects_.log, {}); }
  // The operations that have ended since the last call.
  std::vector<std::shared_ptr<const OperationTimeline>> TakeTimelines() {
    return std::exchange(effects_.timelines, {});
  }
  // Returns how many leases have ended since the last call, by job.
  std::map<std::string, uint64_t> TakeLeasesEnded() { return std::exchange(effects_.leases_ended, {}); }
  // In the order of their names; jobs that were only asked for are left out.
  std::vector<v1::JobSummary> Summaries(const Moment& moment) const;
  // The jobs of which agents' orders may have changed since the last call, other than by the agents' own reports.
  std::vector<std::pair<std::string, OrderBook::Woken>> TakeWoken();

 private:
  const DecisionOptions options_;
  const std::shared_ptr<LayoutTable> layouts_;
  Effects effects_;
  std::map<std::string, std::unique_ptr<Job>> jobs_;
  absl::Time last_now_ = absl::InfinitePast();
  absl::Duration deaf_ = absl::ZeroDuration();
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_JOB_DECISIONS_H_
