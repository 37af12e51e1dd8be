// Lists of places in the words, many of them, each made once with its final length.
#ifndef CAIRN_CORPUS_BPE_PLACE_LISTS_H_
#define CAIRN_CORPUS_BPE_PLACE_LISTS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "corpus/bpe/huge_pages.h"

namespace cairn::corpus {

// A place where a pair begins, and how often the word counts that it stands in.
struct Place {
  uint32_t position;
  uint32_t weight;
};

// Not thread-safe. Lists are numbered by where they lie, so that 32 bits name them.
class PlaceLists {
 public:
  static constexpr uint32_t kNone = ~uint32_t{0};

  // Makes a list of `size` places, not yet filled; kNone when 32 bits can number no more.
  uint32_t Add(uint32_t size, uint32_t previous) {
    const uint64_t needed = uint64_t{size} + 1;
    if (needed > kChunk - used_) {
      const uint64_t chunks = (needed + kChunk - 1) / kChunk;
      if (chunks_.size() + chunks > (uint64_t{1} << 32) / kChunk - 1) return kNone;
      storage_.emplace_back(chunks * kChunk);
      for (uint64_t i = 0; i < chunks; ++i) chunks_.push_back(storage_.back().data() + i * kChunk);
      // A list that spans several chunks leaves the last one's rest unused.
      used_ = chunks == 1 ? 0 : kChunk;
      if (chunks > 1) {
        const uint32_t list = static_cast<uint32_t>((chunks_.size() - chunks) * kChunk);
        *chunks_[list / kChunk] = {size, previous};
        return list;
      }
    }
    const auto list = static_cast<uint32_t>((chunks_.size() - 1) * kChunk + used_);
    chunks_.back()[used_] = {size, previous};
    used_ += needed;
    return list;
  }

  std::span<Place> Get(uint32_t list) {
    Place* const header = chunks_[list / kChunk] + list % kChunk;
    return {header + 1, header->position};
  }
  uint32_t Previous(uint32_t list) const { return (chunks_[list / kChunk] + list % kChunk)->weight; }

  size_t bytes() const { return chunks_.size() * kChunk * sizeof(Place); }

 private:
  static constexpr uint64_t kChunk = uint64_t{1} << 18;

  std::vector<HugeVector<Place>> storage_;
  std::vector<Place*> chunks_;
  uint64_t used_ = kChunk;
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_BPE_PLACE_LISTS_H_
