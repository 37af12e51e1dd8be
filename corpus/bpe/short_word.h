// The symbols of a short word while they are merged.
#ifndef CAIRN_CORPUS_BPE_SHORT_WORD_H_
#define CAIRN_CORPUS_BPE_SHORT_WORD_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "corpus/bpe/merge_table.h"

namespace cairn::corpus {

// Symbols are at the places 1 to `count`, and what is merged is at the place of its first part. After each merge two
// pairs are new: `with_next` and `with_previous` say where the table has them, and it has been asked for them.
struct ShortWord {
  static constexpr size_t kMostPlaces = 64;
  static constexpr size_t kMost = kMostPlaces - 2;
  static constexpr size_t kFew = 16;

  size_t count;
  size_t merges_end;    // a multiple of 8, from kFew on
  uint64_t there;       // the places of symbols, and of one before and one behind them, which merge with nothing
  size_t at, previous;  // set by Merge()
  MergeTable::Place with_next, with_previous;
  uint32_t ids[kMostPlaces];
  // How the symbol at a place merges with the next one, as the table says it. So the first of the least ones is the
  // leftmost one of the lowest rank.
  alignas(64) uint64_t merges[kMostPlaces];

  // Takes ids and the merges of neighbours as they are set.
  void Start(const MergeTable& table) {
    ids[0] = ids[count + 1] = table.no_id();
    there = (uint64_t{4} << count) - 1;
    merges_end = std::max(kFew, (count + 8) & ~size_t{7});
    merges[0] = MergeTable::kNone;
    for (size_t i = std::max<size_t>(count, 1); i < merges_end; ++i) merges[i] = MergeTable::kNone;
  }
  // Merges the symbol at `place` with the next one. `merge` is that of `merges`.
  [[gnu::always_inline]] void Merge(const MergeTable& table, uint64_t merge, size_t place) {
    at = place;
    const uint64_t behind = there & (~uint64_t{1} << at);
    const uint64_t further = behind & (behind - 1);
    const auto gone = static_cast<size_t>(__builtin_ctzll(behind));
    previous = static_cast<size_t>(63 - __builtin_clzll(there & ((uint64_t{1} << at) - 1)));
    there ^= behind ^ further;
    merges[gone] = MergeTable::kNone;
    ids[at] = static_cast<uint32_t>(merge) & table.no_id();
    with_next = table.AskFor(ids[at], ids[__builtin_ctzll(further)]);
    with_previous = table.AskFor(ids[previous], ids[at]);
  }
  void Append(std::vector<uint32_t>& to) const {
    uint64_t left = there & ~uint64_t{1};
    for (; (left & (left - 1)) != 0; left &= left - 1) to.push_back(ids[__builtin_ctzll(left)]);
  }
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_BPE_SHORT_WORD_H_
