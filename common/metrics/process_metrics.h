// The metrics that every process has under the same names: memory, processor time, open files, its version.
#ifndef CAIRN_COMMON_METRICS_PROCESS_METRICS_H_
#define CAIRN_COMMON_METRICS_PROCESS_METRICS_H_

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <string>
#include <vector>

namespace cairn {

// The names and units are those of Prometheus' own client libraries (process_cpu_seconds_total and so on). Thread-safe.
class ProcessMetrics final : public prometheus::Collectable {
 public:
  std::vector<prometheus::MetricFamily> Collect() const override;
};

// Returns a family with one number and no labels.
prometheus::MetricFamily MeasuredGauge(const std::string& name, const std::string& help, double value);
prometheus::MetricFamily MeasuredCounter(const std::string& name, const std::string& help, double value);
// Returns a family without numbers. AddMeasured adds numbers with labels.
prometheus::MetricFamily EmptyFamily(const std::string& name, const std::string& help, prometheus::MetricType type);
void AddMeasured(prometheus::MetricFamily& family, std::vector<prometheus::ClientMetric::Label> labels, double value);

}  // namespace cairn

#endif  // CAIRN_COMMON_METRICS_PROCESS_METRICS_H_
