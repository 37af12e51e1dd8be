// A metric is a value that a trainer measured at a step, for example "loss" with 0.25. Manifests hold metrics;
// retention refers to them.
#ifndef CAIRN_COMMON_FORMAT_METRIC_H_
#define CAIRN_COMMON_FORMAT_METRIC_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace cairn {

// The maximum number of metrics of one checkpoint.
inline constexpr size_t kMaxMetrics = 64;

struct Metric {
  std::string name;
  double value = 0;  // may be NaN or infinite

  // Compares the bits of the values, so that a metric that is NaN equals itself.
  bool operator==(const Metric& other) const;
};

// Returns true for 1 to 100 letters, digits, and characters of "._/-"; the first is a letter, a digit or '_'.
bool IsMetricName(std::string_view name);

// Says which of several checkpoints is the best one.
struct BestRule {
  std::string metric;
  bool highest = false;  // true: the highest value is best; false: the lowest

  bool operator==(const BestRule&) const = default;
};

// Reads "METRIC:min" or "METRIC:max". INVALID_ARGUMENT (BAD_REQUEST).
absl::StatusOr<BestRule> ParseBestRule(std::string_view text);
// Returns the text that ParseBestRule reads.
std::string ToString(const BestRule& rule);

}  // namespace cairn

#endif  // CAIRN_COMMON_FORMAT_METRIC_H_
