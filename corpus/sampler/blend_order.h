// Says from which dataset each sample of a blend comes, as build_blending_indices and build_exhaustive_blending_indices
// of megatron/core/datasets/helpers.cpp do.
#ifndef CAIRN_CORPUS_SAMPLER_BLEND_ORDER_H_
#define CAIRN_CORPUS_SAMPLER_BLEND_ORDER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace cairn::corpus {

// Megatron's rule: sample i comes from the dataset that is farthest behind its share, the one with the greatest
// weight * max(i, 1) - taken, computed in doubles; of equal ones from the first. Its loop computes that of all datasets
// for each sample.
//
// Here datasets of equal weight are one line, because they take turns. Lines are sorted by weight into blocks of 16
// or 64. A block keeps a bound on its greatest value, which rises with the greatest weight in it, and only blocks whose
// bound reaches the greatest value found are looked at: seldom more than two. The values themselves are computed as
// Megatron computes them, so the order is the same to the last rounding. Not thread-safe; takes some 40 bytes for each
// dataset.
class BlendOrder {
 public:
  struct Sample {
    int32_t dataset;
    int64_t number;  // in the dataset, from 0
  };

  // The weights are positive; they should add up to 1. Next may be called without end.
  static BlendOrder ByWeights(std::span<const double> weights);
  // Each dataset gives as many samples as its size (positive), in proportion to the sizes. Next may be called as often
  // as there are samples.
  static BlendOrder Exhaustive(std::span<const uint64_t> sizes);

  Sample Next();

 private:
  static constexpr size_t kBlock = 16;
  static constexpr size_t kMostBlock = 64;  // if there are many lines

  struct Turns {              // the datasets of one line, ascending
    size_t begin, end, next;  // in datasets_
    double most;              // rounds after which they are spent
  };
  struct Candidate {
    double value;
    size_t line;
  };

  BlendOrder(std::span<const double> weights, std::span<const uint64_t> sizes);

  // Return the line that precedes the others: of all; of a block, whose bound they tighten; of all, by their blocks.
  Candidate LookAtAll() const;
  Candidate Look(size_t block);
  template <size_t kLines>
  Candidate LookAt(size_t block);
  Candidate LookForGreatest();
  bool Precedes(const Candidate& one, const Candidate& other) const;

  size_t block_;                         // lines in a block
  std::vector<double> weights_, taken_;  // of each line, in whole blocks; an absent or spent one has 0, infinity
  std::vector<Turns> turns_;             // of each line that is not absent
  std::vector<int32_t> datasets_;        // by line
  std::vector<double> slopes_, heights_, bounds_;  // of each block, and one more if their number is odd
  uint64_t step_ = 0;
  double now_ = 1;  // max(step_, 1)
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_SAMPLER_BLEND_ORDER_H_
