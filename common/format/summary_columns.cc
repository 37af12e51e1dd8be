#include "common/format/summary_columns.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace cairn {

constexpr int kLanes = static_cast<int>(TensorStatistics::kLanes);

namespace {

// Returns the number as a float32 that is finite: one that is too large becomes the largest, and one that sums of
// infinities have made undefined becomes 0. So numbers of any checkpoint can be compared.
float Finite(double number) {
  constexpr auto kLargest = static_cast<double>(std::numeric_limits<float>::max());
  return std::isnan(number) ? 0 : static_cast<float>(std::clamp(number, -kLargest, kLargest));
}

}  // namespace

void AppendSummary(const TensorSummary& summary, v1::SummaryColumns& columns) {
  const TensorStatistics& statistics = summary.statistics;
  columns.add_fingerprint_parts(summary.fingerprint_parts);
  columns.add_zeros(statistics.zeros);
  columns.add_non_finite_counts(statistics.non_finite);
  columns.add_min_values(statistics.min);
  columns.add_max_values(statistics.max);
  columns.add_sums(Finite(statistics.sum));
  columns.add_sum_squares(Finite(statistics.sum_squares));
  for (const double lane : statistics.sketch) columns.add_sketches(Finite(lane));
}

TensorSummary AsRecorded(const TensorSummary& summary, DType dtype) {
  v1::SummaryColumns columns;
  AppendSummary(summary, columns);
  return SummaryAt(columns, 0, dtype);
}

bool HasSummaries(const v1::SummaryColumns& columns, int count) {
  return columns.fingerprint_parts_size() == count && columns.zeros_size() == count &&
         columns.non_finite_counts_size() == count && columns.min_values_size() == count &&
         columns.max_values_size() == count && columns.sums_size() == count && columns.sum_squares_size() == count &&
         columns.sketches_size() / kLanes == count && columns.sketches_size() % kLanes == 0;
}

TensorSummary SummaryAt(const v1::SummaryColumns& columns, int index, DType dtype) {
  TensorSummary summary;
  summary.fingerprint_parts = columns.fingerprint_parts(index);
  if (!HasStatistics(dtype)) return summary;
  TensorStatistics& statistics = summary.statistics;
  statistics.zeros = columns.zeros(index);
  statistics.non_finite = columns.non_finite_counts(index);
  statistics.min = columns.min_values(index);
  statistics.max = columns.max_values(index);
  statistics.sum = static_cast<double>(columns.sums(index));
  statistics.sum_squares = static_cast<double>(columns.sum_squares(index));
  for (int lane = 0; lane < kLanes; ++lane) {
    statistics.sketch[static_cast<size_t>(lane)] = static_cast<double>(columns.sketches(index * kLanes + lane));
  }
  return summary;
}

}  // namespace cairn
