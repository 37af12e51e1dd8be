// Asks the agents of this machine for their metrics, as Prometheus would.
#ifndef CAIRN_CLI_LOCAL_AGENT_SCRAPE_H_
#define CAIRN_CLI_LOCAL_AGENT_SCRAPE_H_

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/metrics/merged_metrics.h"

namespace cairn::cli {

// The Unix socket at which the agent of a rank serves metrics.
struct AgentSocket {
  int rank = 0;
  std::string path;
};

// Asks all agents at once. Returns the metrics of each, with the label `rank`. An agent that is not there, or has not
// answered within `timeout`, is left out.
std::vector<MetricsText> ScrapeAgents(const std::vector<AgentSocket>& agents, absl::Duration timeout);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_LOCAL_AGENT_SCRAPE_H_
