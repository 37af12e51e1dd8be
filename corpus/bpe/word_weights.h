// Says how often the words at ascending positions occur.
#ifndef CAIRN_CORPUS_BPE_WORD_WEIGHTS_H_
#define CAIRN_CORPUS_BPE_WORD_WEIGHTS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace cairn::corpus {

// Words lie by descending count, so a few thousand steps describe all.
class WordWeights {
 public:
  // The words from position `begin` on have this count. Positions ascend.
  void Add(uint32_t begin, uint64_t count) {
    begins_.push_back(begin);
    counts_.push_back(count);
  }
  // Must be called behind the last Add.
  void Finish() { begins_.push_back(~uint32_t{0}); }

  // Made behind Finish.
  class Cursor {
   public:
    explicit Cursor(const WordWeights& weights) : weights_(weights) {}

    // `position` must not be below that of the call before.
    uint64_t At(uint32_t position) {
      if (position >= next_begin_) Advance(position);
      return weight_;
    }

   private:
    // Most positions are near, so it takes doubling steps, then a binary search.
    void Advance(uint32_t position) {
      const uint32_t* const begins = weights_.begins_.data();
      const size_t last = weights_.begins_.size() - 1;
      size_t low = next_, step = 1;
      while (low + step < last && begins[low + step] <= position) {
        low += step;
        step *= 2;
      }
      next_ =
          static_cast<size_t>(std::upper_bound(begins + low, begins + std::min(low + step, last), position) - begins);
      next_begin_ = begins[next_];
      weight_ = weights_.counts_[next_ - 1];
    }

    const WordWeights& weights_;
    size_t next_ = 0;
    uint32_t next_begin_ = 0;
    uint64_t weight_ = 0;
  };

 private:
  std::vector<uint32_t> begins_;
  std::vector<uint64_t> counts_;
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_BPE_WORD_WEIGHTS_H_
