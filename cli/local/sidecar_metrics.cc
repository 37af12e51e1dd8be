#include "cli/local/sidecar_metrics.h"

#include "common/metrics/process_metrics.h"

namespace cairn::cli {
namespace {

// Prometheus waits for ten seconds.
constexpr absl::Duration kPatience = absl::Seconds(2);

}  // namespace

std::vector<prometheus::MetricFamily> SidecarMetrics::Collect() const {
  prometheus::MetricFamily running =
      EmptyFamily("cairn_agents_running", "Agents of this pod that run.", prometheus::MetricType::Gauge);
  AddMeasured(running, {{"job_name", job_}}, running_);
  prometheus::MetricFamily restarts =
      EmptyFamily("cairn_agent_restarts_total", "Agents of this pod that ended, and were started again.",
                  prometheus::MetricType::Counter);
  AddMeasured(restarts, {{"job_name", job_}}, static_cast<double>(restarts_));
  return {running, restarts};
}

void SidecarMetrics::SetServing(std::vector<AgentSocket> agents) {
  MutexLock lock(mutex_);
  agents_ = std::move(agents);
}

bool SidecarMetrics::serving() const {
  MutexLock lock(mutex_);
  return !agents_.empty();
}

std::vector<MetricsText> SidecarMetrics::OfAgents() const {
  std::vector<AgentSocket> agents;
  {
    MutexLock lock(mutex_);
    agents = agents_;
  }
  return ScrapeAgents(agents, kPatience);
}

}  // namespace cairn::cli
