// Tells Prometheus of the agents that `cairn agents` keeps running. docs/monitoring.md lists the metrics.
#ifndef CAIRN_CLI_LOCAL_SIDECAR_METRICS_H_
#define CAIRN_CLI_LOCAL_SIDECAR_METRICS_H_

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

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

 private:
  const std::string job_;
  std::atomic<int> running_ = 0;
  std::atomic<int64_t> restarts_ = 0;
};

}  // namespace cairn::cli

#endif  // CAIRN_CLI_LOCAL_SIDECAR_METRICS_H_
