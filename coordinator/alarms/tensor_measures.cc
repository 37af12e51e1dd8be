#include "coordinator/alarms/tensor_measures.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace cairn {

using Tensor = StateSummary::Tensor;

int64_t Elements(const Tensor& tensor) { return ElementCount(tensor.shape).value_or(0); }

bool IsNarrow(DType dtype) { return BytesOf(dtype) < 4; }

double Norm(const Tensor& tensor) { return std::sqrt(tensor.summary.statistics.sum_squares); }

double Variance(const Tensor& tensor) {
  const TensorStatistics& statistics = tensor.summary.statistics;
  const double count = static_cast<double>(Elements(tensor)) - static_cast<double>(statistics.non_finite);
  if (count < 1) return 0;
  const double mean = statistics.sum / count;
  return std::max(0.0, statistics.sum_squares / count - mean * mean);
}

double Distance(const Tensor& a, const Tensor& b) {
  const double by_norms = std::abs(Norm(a) - Norm(b));
  const double by_sums = std::abs(a.summary.statistics.sum - b.summary.statistics.sum) /
                         std::sqrt(std::max(1.0, static_cast<double>(Elements(a))));
  return std::max({EstimatedDistance(a.summary.statistics, b.summary.statistics), by_norms, by_sums});
}

double LargestMagnitude(const Tensor& tensor) {
  const TensorStatistics& statistics = tensor.summary.statistics;
  return statistics.min > statistics.max ? 0 : std::max(std::abs(statistics.min), std::abs(statistics.max));
}

bool IsZero(const Tensor& tensor) {
  return Elements(tensor) > 0 && tensor.summary.statistics.zeros == static_cast<uint64_t>(Elements(tensor));
}

std::optional<double> Median(std::vector<double> values) {
  if (values.empty()) return std::nullopt;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

}  // namespace cairn
