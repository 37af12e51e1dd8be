#include "corpus/sampler/weights.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

namespace cairn::corpus {

double NumpySum(std::span<const double> values) {
  constexpr size_t kSide = 8;          // sums side by side
  constexpr size_t kHalveAbove = 128;  // values
  if (values.size() < kSide) {
    double sum = 0;
    for (const double value : values) sum += value;
    return sum;
  }
  if (values.size() > kHalveAbove) {
    const size_t half = values.size() / 2 / kSide * kSide;
    return NumpySum(values.first(half)) + NumpySum(values.subspan(half));
  }
  std::array<double, kSide> sums;
  std::copy_n(values.begin(), kSide, sums.begin());
  size_t i = kSide;
  for (; i + kSide <= values.size(); i += kSide) {
    for (size_t k = 0; k < kSide; ++k) sums[k] += values[i + k];
  }
  double sum = ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
  for (; i < values.size(); ++i) sum += values[i];
  return sum;
}

std::vector<double> Normalize(std::span<const double> weights) {
  const double sum = NumpySum(weights);
  std::vector<double> shares(weights.begin(), weights.end());
  for (double& share : shares) share /= sum;
  return shares;
}

uint64_t SamplesOfShare(uint64_t samples, double normalized_weight, double surplus) {
  const double share = std::ceil(static_cast<double>(samples) * normalized_weight);
  return static_cast<uint64_t>(std::ceil(share * (1 + surplus)));
}

}  // namespace cairn::corpus
