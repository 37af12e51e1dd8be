#include "corpus/sampler/blend_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "corpus/sampler/weights.h"

namespace cairn::corpus {
namespace {

// Megatron's rule as it is written down, one dataset after the other.
class SlowOrder {
 public:
  SlowOrder(std::vector<double> weights, std::vector<uint64_t> sizes)
      : weights_(std::move(weights)), sizes_(std::move(sizes)), taken_(weights_.size()) {}

  BlendOrder::Sample Next() {
    const double now = std::max(static_cast<double>(step_++), 1.0);
    double greatest = std::numeric_limits<double>::lowest();
    size_t chosen = 0;
    for (size_t i = 0; i < weights_.size(); ++i) {
      if (!sizes_.empty() && taken_[i] == static_cast<int64_t>(sizes_[i])) continue;
      const double behind = weights_[i] * now - static_cast<double>(taken_[i]);
      if (behind > greatest) {
        greatest = behind;
        chosen = i;
      }
    }
    return {static_cast<int32_t>(chosen), taken_[chosen]++};
  }

 private:
  const std::vector<double> weights_;
  const std::vector<uint64_t> sizes_;
  std::vector<int64_t> taken_;
  uint64_t step_ = 0;
};

void ExpectEqual(BlendOrder order, SlowOrder expected, uint64_t steps, int seed) {
  for (uint64_t step = 0; step < steps; ++step) {
    const BlendOrder::Sample sample = order.Next();
    const BlendOrder::Sample other = expected.Next();
    ASSERT_EQ(sample.dataset, other.dataset) << "seed " << seed << ", step " << step;
    ASSERT_EQ(sample.number, other.number) << "seed " << seed << ", step " << step;
  }
}

// Equal weights take turns, powers of two tie at many steps, and weights that differ in the seventh digit are in a near
// tie for long.
TEST(BlendOrderTest, ByWeights_RandomWeights_EqualsTheRule) {
  for (int seed = 0; seed < 60; ++seed) {
    std::mt19937 generator(seed);
    const auto random = [&] { return static_cast<uint32_t>(generator()); };
    const size_t count = 1 + random() % (seed % 3 == 0 ? 6 : seed % 3 == 1 ? 40 : 900);
    std::vector<double> weights;
    for (size_t i = 0; i < count; ++i) {
      switch (seed / 3 % 5) {
        case 0:
          weights.push_back(1);
          break;
        case 1:
          weights.push_back(1 + random() % 4);
          break;
        case 2:
          weights.push_back((1 + random() % 1'000'000) * 1e-6);
          break;
        case 3:
          weights.push_back(1'000'000 + random() % 3);
          break;
        default:
          weights.push_back(1.0 / (1u << random() % 8));
          break;
      }
    }
    weights = Normalize(weights);
    ExpectEqual(BlendOrder::ByWeights(weights), SlowOrder(weights, {}), 5000, seed);
  }
}

TEST(BlendOrderTest, Exhaustive_RandomSizes_EqualsTheRuleToTheLastSample) {
  for (int seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    std::vector<uint64_t> sizes(1 + random() % (seed % 2 == 0 ? 6 : 150));
    for (uint64_t& size : sizes) size = 1 + random() % (seed % 3 == 0 ? 3 : 100);
    const uint64_t total = std::accumulate(sizes.begin(), sizes.end(), uint64_t{0});
    std::vector<double> weights;
    for (const uint64_t size : sizes) weights.push_back(static_cast<double>(size) / static_cast<double>(total));
    ExpectEqual(BlendOrder::Exhaustive(sizes), SlowOrder(weights, sizes), total, seed);
  }
}

}  // namespace
}  // namespace cairn::corpus
