#include "corpus/sampler/blend_order.h"

#include <algorithm>
#include <array>
#include <bit>
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

BlendOrder::BlendOrder(std::span<const double> weights, std::span<const uint64_t> sizes) {
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
      turns_.push_back({i, i, i, sizes.empty() ? kInfinity : static_cast<double>(sizes[datasets_[i]])});
    }
    turns_.back().end = i + 1;
  }
  taken_.resize(weights_.size(), 0);
  block_ = weights_.size() <= 1024 ? kBlock : kMostBlock;  // a step computes all bounds, and two or three blocks
  const size_t blocks = (weights_.size() + block_ - 1) / block_;
  weights_.resize(blocks * block_, 0);
  taken_.resize(blocks * block_, kInfinity);
  for (size_t block = 0; block < blocks; ++block) slopes_.push_back(weights_[block * block_] * (1 + kSlack));
  const size_t whole_pairs = (blocks + 1) / kPair * kPair;
  slopes_.resize(whole_pairs, 0);
  heights_.resize(whole_pairs, -kInfinity);
  bounds_.resize(whole_pairs);
  for (size_t block = 0; block < blocks; ++block) Look(block);
}

bool BlendOrder::Precedes(const Candidate& one, const Candidate& other) const {
  if (one.value != other.value) return one.value > other.value;
  return one.value > -kInfinity && datasets_[turns_[one.line].next] < datasets_[turns_[other.line].next];
}

BlendOrder::Candidate BlendOrder::LookAtAll() const {
  Candidate best = {weights_[0] * now_ - taken_[0], 0};
  for (size_t line = 1; line < turns_.size(); ++line) {
    const Candidate other = {weights_[line] * now_ - taken_[line], line};
    if (other.value >= best.value && Precedes(other, best)) best = other;
  }
  return best;
}

BlendOrder::Candidate BlendOrder::Look(size_t block) {
  return block_ == kBlock ? LookAt<kBlock>(block) : LookAt<kMostBlock>(block);
}

template <size_t kLines>
BlendOrder::Candidate BlendOrder::LookAt(size_t block) {
  const size_t begin = block * kLines;
  const Pair now = {now_, now_};
  std::array<Pair, kLines / kPair> values;
  Pair even = {-kInfinity, -kInfinity}, odd = even;  // two chains, because each step of one waits for the last
  for (size_t i = 0; i < values.size(); i += 2) {
    values[i] = Load(&weights_[begin + i * kPair]) * now - Load(&taken_[begin + i * kPair]);
    values[i + 1] = Load(&weights_[begin + (i + 1) * kPair]) * now - Load(&taken_[begin + (i + 1) * kPair]);
    even = values[i] > even ? values[i] : even;
    odd = values[i + 1] > odd ? values[i + 1] : odd;
  }
  even = even > odd ? even : odd;
  const double greatest = std::max(even[0], even[1]);
  heights_[block] = greatest - slopes_[block] * now_ * (1 - kSlack) + kSlack;
  // One bit for each line that has this value: nearly always one.
  using Bits = int64_t __attribute__((vector_size(16)));
  Bits found = {0, 0};
  const Pair wanted = {greatest, greatest};
  for (size_t i = 0; i < values.size(); ++i) {
    found |= (values[i] == wanted) & Bits{int64_t{1} << 2 * i, int64_t{2} << 2 * i};
  }
  uint64_t lines = static_cast<uint64_t>(found[0] | found[1]);
  Candidate best = {greatest, begin + static_cast<size_t>(std::countr_zero(lines))};
  while ((lines &= lines - 1) != 0) {
    const Candidate other = {greatest, begin + static_cast<size_t>(std::countr_zero(lines))};
    if (Precedes(other, best)) best = other;
  }
  return best;
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
    if (Precedes(other, best)) best = other;
  }
  return best;
}

BlendOrder::Sample BlendOrder::Next() {
  const bool one_block = weights_.size() == kBlock;
  const size_t line = (one_block ? LookAtAll() : LookForGreatest()).line;
  Turns& turns = turns_[line];
  const Sample sample = {datasets_[turns.next], static_cast<int64_t>(taken_[line])};
  if (++turns.next == turns.end) {
    turns.next = turns.begin;
    taken_[line] += 1;
    if (taken_[line] == turns.most) {
      weights_[line] = 0;
      taken_[line] = kInfinity;
    }
  }
  now_ = std::max(1.0, static_cast<double>(++step_));
  // The bound of this block is much too high now.
  if (!one_block) Look(line / block_);
  return sample;
}

}  // namespace cairn::corpus
