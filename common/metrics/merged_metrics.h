// Puts the metrics of several processes into one text for Prometheus.
#ifndef CAIRN_COMMON_METRICS_MERGED_METRICS_H_
#define CAIRN_COMMON_METRICS_MERGED_METRICS_H_

#include <string>
#include <vector>

namespace cairn {

// What one process serves, in Prometheus' text format.
struct MetricsText {
  std::string label;  // given to each of its series, for example `rank="3"`; may be empty
  std::string text;
};

// Returns the series of all texts. Prometheus wants all series of a metric in one piece behind its type and its help:
// these come from the first text that has the metric. A line before the first `# HELP` or `# TYPE` is left out.
std::string MergedMetrics(const std::vector<MetricsText>& texts);

}  // namespace cairn

#endif  // CAIRN_COMMON_METRICS_MERGED_METRICS_H_
