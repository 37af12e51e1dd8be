// Tells Prometheus of a coordinator's jobs. docs/monitoring.md lists the metrics.
#ifndef CAIRN_COORDINATOR_SERVER_COORDINATOR_METRICS_H_
#define CAIRN_COORDINATOR_SERVER_COORDINATOR_METRICS_H_

#include <prometheus/collectable.h>
#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/metric_family.h>
#include <prometheus/registry.h>

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "cairn/v1/monitoring_service.pb.h"
#include "common/base/mutex.h"
#include "coordinator/timeline/operation_timeline.h"
#include "store/mirror/mirror.h"

namespace cairn {

// Thread-safe. The number of series has a bound: labels are the job, the kind of operation, its phase and the reason of
// an error. A rank is only a value, that of the slowest one.
class CoordinatorMetrics final : public prometheus::Collectable {
 public:
  // So many jobs have series of their own. Those that come later are counted together, as job "(other)".
  static constexpr size_t kJobs = 50;

  // Holds what is asked at each scrape.
  struct Now {
    std::vector<v1::JobSummary> jobs;
    int stalled_storage_calls = 0;
    uint64_t epoch = 0;
    absl::Duration stopped = absl::ZeroDuration();  // as Dispatcher::Strain
    absl::Duration deaf = absl::ZeroDuration();
    std::vector<std::pair<std::string, uint64_t>> refusals;  // by what was asked for
    std::optional<MirrorCounts> mirror = std::nullopt;
  };
  explicit CoordinatorMetrics(std::function<Now()> now);

  // An operation has ended.
  void Observe(const OperationTimeline& timeline);
  // So many leases of the job's agents have ended.
  void LeasesEnded(const std::string& job, uint64_t leases);
  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  std::string JobLabel(const std::string& job) const;

  const std::function<Now()> now_;
  mutable Mutex mutex_;
  mutable std::set<std::string> jobs_ ABSL_GUARDED_BY(mutex_);
  prometheus::Registry registry_;
  prometheus::Family<prometheus::Counter>& operations_;
  prometheus::Family<prometheus::Counter>& failures_;
  prometheus::Family<prometheus::Counter>& bytes_;
  prometheus::Family<prometheus::Histogram>& seconds_;
  prometheus::Family<prometheus::Counter>& phase_seconds_;
  prometheus::Family<prometheus::Gauge>& slowest_rank_;
  prometheus::Family<prometheus::Gauge>& slowest_behind_;
  prometheus::Family<prometheus::Gauge>& last_commit_time_;
  prometheus::Family<prometheus::Gauge>& last_commit_step_;
  prometheus::Family<prometheus::Counter>& leases_ended_;
  prometheus::Family<prometheus::Counter>& alarms_;
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_SERVER_COORDINATOR_METRICS_H_
