#include "common/rpc/reported_metrics.h"

#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/format/metric.h"
#include "common/status/reason.h"

namespace cairn {

absl::Status CheckMetrics(const google::protobuf::RepeatedPtrField<v1::Metric>& metrics) {
  if (static_cast<size_t>(metrics.size()) > kMaxMetrics) {
    return MakeError(Reason::kBadRequest, absl::StrCat("more than ", kMaxMetrics, " metrics"));
  }
  std::set<std::string> names;
  for (const v1::Metric& metric : metrics) {
    if (!IsMetricName(metric.name()) || !names.insert(metric.name()).second) {
      return MakeError(
          Reason::kBadRequest,
          "a metric's name is used twice, or is not up to 100 letters, digits, and characters of \"._/-\"");
    }
  }
  return absl::OkStatus();
}

}  // namespace cairn
