// A metric is what a trainer measured at a step, as "loss" with 0.25. Manifests hold it, and rules of what is kept
// refer to it.
#ifndef CAIRN_COMMON_FORMAT_METRIC_H_
#define CAIRN_COMMON_FORMAT_METRIC_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace cairn {

// A checkpoint has at most so many.
inline constexpr size_t kMaxMetrics = 64;

struct Metric {
  std::string name;
  double value = 0;  // may be NaN or infinite

  // Compares the bits of the values, so that a metric that is NaN equals itself.
  bool operator==(const Metric& other) const;
};

// Returns true for up to 100 letters, digits, and characters of "._/-", of which the first is a letter, a digit or '_'.
bool IsMetricName(std::string_view name);

// Says which of several checkpoints is the best one.
struct BestRule {
  std::string metric;
  bool highest = false;  // the one with the highest value, else the lowest

  bool operator==(const BestRule&) const = default;
};

// Reads "METRIC:min" or "METRIC:max". INVALID_ARGUMENT (BAD_REQUEST).
absl::StatusOr<BestRule> ParseBestRule(std::string_view text);
// Returns the text that ParseBestRule reads.
std::string ToString(const BestRule& rule);

}  // namespace cairn

#endif  // CAIRN_COMMON_FORMAT_METRIC_H_
