#include "corpus/sampler/blend_order.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

namespace cairn::corpus {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// A bound exceeds what it bounds by more than the roundings of both: each is off by some 2^-53 of the greatest number
// that was rounded, which is about weight * now.
constexpr double kSlack = 0x1p-48;

// Two numbers side by side, which every x86-64 and ARM processor computes at once.
using Pair = double __attribute__((vector_size(16)));
constexpr size_t kPair = 2;

Pair Load(const double* values) {
  Pair pair;
  std::memcpy(&pair, values, sizeof pair);
  return pair;
}

}  // namespace

BlendOrder BlendOrder::ByWeights(std::span<const double> weights) { return BlendOrder(weights, {}); }

BlendOrder BlendOrder::Exhaustive(std::span<const uint64_t> sizes) {
  const uint64_t total = std::accumulate(sizes.begin(), sizes.end(), uint64_t{0});
  std::vector<double> weights;
  for (const uint64_t size : sizes) weights.push_back(static_cast<double>(size) / static_cast<double>(total));
  return BlendOrder(weights, sizes);
}

BlendOrder::BlendOrder(std::span<const double> weights, std::span<const uint64_t> sizes) : lines_(weights.size()) {
  datasets_.resize(weights.size());
  std::iota(datasets_.begin(), datasets_.end(), 0);
  // Sizes beyond 2^53 may differ although their weights are equal. Equal sizes have equal weights.
  const auto heavier = [&](int32_t a, int32_t b) {
    return sizes.empty() ? weights[a] > weights[b] : sizes[a] > sizes[b];
  };
  std::stable_sort(datasets_.begin(), datasets_.end(), heavier);
  for (size_t i = 0; i < datasets_.size(); ++i) {
    if (i == 0 || heavier(datasets_[i - 1], datasets_[i])) {
      weights_.push_back(weights[datasets_[i]]);
      next_.push_back(datasets_[i]);
      turns_.push_back({i, i, i, sizes.empty() ? kInfinity : static_cast<double>(sizes[datasets_[i]])});
    }
    turns_.back().end = i + 1;
    lines_[datasets_[i]] = turns_.size() - 1;
  }
  taken_.resize(weights_.size(), 0);
  // A step computes all bounds and two or three blocks.
  const double lines = static_cast<double>(weights_.size());
  block_lines_ = lines <= 16 ? (weights_.size() + 1) / kPair * kPair
                             : std::bit_ceil(static_cast<size_t>(std::max(16.0, std::sqrt(lines) / 2)));
  const size_t blocks = (weights_.size() + block_lines_ - 1) / block_lines_;
  weights_.resize(blocks * block_lines_, 0);
  taken_.resize(blocks * block_lines_, kInfinity);
  next_.resize(blocks * block_lines_, kInfinity);
  for (size_t block = 0; block < blocks; ++block) slopes_.push_back(weights_[block * block_lines_] * (1 + kSlack));
  const size_t whole_pairs = (blocks + 1) / kPair * kPair;
  slopes_.resize(whole_pairs, 0);
  heights_.resize(whole_pairs, -kInfinity);
  bounds_.resize(whole_pairs);
  for (size_t block = 0; block < blocks; ++block) Look(block);
}

BlendOrder::Candidate BlendOrder::Look(size_t block) {
  const size_t begin = block * block_lines_;
  const Pair now = {now_, now_};
  Pair value = {-kInfinity, -kInfinity};
  Pair dataset = {kInfinity, kInfinity};
  for (size_t i = begin; i < begin + block_lines_; i += kPair) {
    const Pair other = Load(&weights_[i]) * now - Load(&taken_[i]);
    const Pair other_dataset = Load(&next_[i]);
    const auto precedes = (other > value) | ((other == value) & (other_dataset < dataset));
    value = precedes ? other : value;
    dataset = precedes ? other_dataset : dataset;
  }
  Candidate first = {value[0], dataset[0]};
  const Candidate second = {value[1], dataset[1]};
  if (second.Precedes(first)) first = second;
  heights_[block] = first.value - slopes_[block] * now_ * (1 - kSlack) + kSlack;
  return first;
}

BlendOrder::Candidate BlendOrder::LookForGreatest() {
  const Pair now = {now_, now_};
  Pair greatest = {-kInfinity, -kInfinity};
  for (size_t block = 0; block < bounds_.size(); block += kPair) {
    const Pair bound = Load(&slopes_[block]) * now + Load(&heights_[block]);
    std::memcpy(&bounds_[block], &bound, sizeof bound);
    greatest = bound > greatest ? bound : greatest;
  }
  const double highest_bound = std::max(greatest[0], greatest[1]);
  const size_t highest =
      static_cast<size_t>(std::find(bounds_.begin(), bounds_.end(), highest_bound) - bounds_.begin());
  Candidate best = Look(highest);
  for (size_t block = 0; block < bounds_.size(); ++block) {
    if (bounds_[block] < best.value || block == highest) continue;
    const Candidate other = Look(block);
    if (other.Precedes(best)) best = other;
  }
  return best;
}

BlendOrder::Sample BlendOrder::Next() {
  const bool one_block = weights_.size() == block_lines_;
  const Candidate best = one_block ? Look(0) : LookForGreatest();
  const int32_t dataset = static_cast<int32_t>(best.dataset);
  const size_t line = lines_[dataset];
  Turns& turns = turns_[line];
  const Sample sample = {dataset, static_cast<int64_t>(taken_[line])};
  if (++turns.next == turns.end) {
    turns.next = turns.begin;
    taken_[line] += 1;
    if (taken_[line] == turns.most) {
      weights_[line] = 0;
      taken_[line] = kInfinity;
    }
  }
  next_[line] = datasets_[turns.next];
  now_ = std::max(1.0, static_cast<double>(++step_));
  // The bound of this block is much too high now.
  if (!one_block) Look(line / block_lines_);
  return sample;
}

}  // namespace cairn::corpus
