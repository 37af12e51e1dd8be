// Tells Prometheus of the agents that `cairn agents` keeps running, and gives their own metrics. docs/monitoring.md
// lists them.
#ifndef CAIRN_CLI_LOCAL_SIDECAR_METRICS_H_
#define CAIRN_CLI_LOCAL_SIDECAR_METRICS_H_

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cli/local/agent_scrape.h"
#include "common/base/mutex.h"
#include "common/metrics/merged_metrics.h"

namespace cairn::cli {

// Thread-safe.
class SidecarMetrics final : public prometheus::Collectable {
 public:
  explicit SidecarMetrics(std::string job) : job_(std::move(job)) {}

  void Set(int running, int64_t restarts) {
    running_ = running;
    restarts_ = restarts;
  }
  std::vector<prometheus::MetricFamily> Collect() const override;

  // Says that all agents serve, and where each has its metrics.
  void SetServing(std::vector<AgentSocket> agents);
  bool serving() const;
  // Returns the metrics of all agents that answer. Waits for them for two seconds at most.
  std::vector<MetricsText> OfAgents() const;

 private:
  const std::string job_;
  mutable Mutex mutex_;
  std::vector<AgentSocket> agents_ ABSL_GUARDED_BY(mutex_);  // empty until all serve
  std::atomic<int> running_ = 0;
  std::atomic<int64_t> restarts_ = 0;
};

}  // namespace cairn::cli

#endif  // CAIRN_CLI_LOCAL_SIDECAR_METRICS_H_
