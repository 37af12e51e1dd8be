// Tells Prometheus of an agent. docs/monitoring.md lists the metrics.
#ifndef CAIRN_AGENT_RUNTIME_AGENT_METRICS_H_
#define CAIRN_AGENT_RUNTIME_AGENT_METRICS_H_

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <string>
#include <vector>

#include "agent/runtime/agent.h"

namespace cairn {

// Thread-safe. The agent must outlive it. Which job it is stands in one metric only, because Prometheus knows each
// agent by its address.
class AgentMetrics final : public prometheus::Collectable {
 public:
  explicit AgentMetrics(Agent& agent) : agent_(agent) {}
  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  Agent& agent_;
};

}  // namespace cairn

#endif  // CAIRN_AGENT_RUNTIME_AGENT_METRICS_H_
