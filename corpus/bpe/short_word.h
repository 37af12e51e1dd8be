// Merges the symbols of a short word.
#ifndef CAIRN_CORPUS_BPE_SHORT_WORD_H_
#define CAIRN_CORPUS_BPE_SHORT_WORD_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "corpus/bpe/merge_table.h"

namespace cairn::corpus {

// A word whose symbols are merged. They are at the places 1 to `count`, and what is merged is at the place of its first
// part. Each step looks up two pairs, for which it asked in the step before.
struct ShortWord {
  static constexpr int kPlaceBits = 6;
  static constexpr size_t kMostPlaces = size_t{1} << kPlaceBits;
  static constexpr size_t kMost = kMostPlaces - 2;
  static constexpr size_t kFew = 16;
  static_assert(MergeTable::kValueBits + kPlaceBits < 64);

  size_t count;
  size_t merges_end;
  uint64_t there;  // the places of symbols, and of one before and one behind them, which merge with nothing
  size_t at, previous;
  MergeTable::Place with_next, with_previous;
  uint32_t ids[kMostPlaces];
  // How the symbol at a place merges with the next one: the rank, the place, and the result. So the least of all is the
  // leftmost one of the lowest rank. kNone if they do not merge.
  uint64_t merges[kMostPlaces];

  void Set(const MergeTable& table, size_t place, uint64_t merge) {
    const uint64_t result = merge & table.no_id();
    const uint64_t value = (merge - result) << kPlaceBits | uint64_t{place} << table.id_bits() | result;
    merges[place] = value | -uint64_t{merge == MergeTable::kNone};  // a branch could not be predicted
  }
  // Takes ids and the merges of neighbours as they are set.
  void Start(const MergeTable& table) {
    ids[0] = ids[count + 1] = table.no_id();
    there = (uint64_t{4} << count) - 1;
    merges_end = std::max(kFew, (count + 4) & ~size_t{3});
    merges[0] = MergeTable::kNone;
    for (size_t i = std::max<size_t>(count, 1); i < merges_end; ++i) merges[i] = MergeTable::kNone;
    at = previous = 0;
    with_next = with_previous = table.AskFor(table.no_id(), table.no_id());
  }
  uint64_t LeastMerge() const {
    uint64_t best[4] = {merges[0], merges[1], merges[2], merges[3]};
    const auto look = [&](size_t i) __attribute__((always_inline)) {
      best[0] = Least(best[0], merges[i]);
      best[1] = Least(best[1], merges[i + 1]);
      best[2] = Least(best[2], merges[i + 2]);
      best[3] = Least(best[3], merges[i + 3]);
    };
    look(4);
    look(8);
    look(12);
    if (merges_end > kFew) {
      for (size_t i = kFew; i < merges_end; i += 4) look(i);
    }
    return Least(Least(best[0], best[1]), Least(best[2], best[3]));
  }
  // Merges one pair. Returns false if there is none.
  bool Step(const MergeTable& table) {
    Set(table, at, table.Find(with_next));
    Set(table, previous, table.Find(with_previous));
    const uint64_t least = LeastMerge();
    if (least == MergeTable::kNone) return false;
    at = least >> table.id_bits() & (kMostPlaces - 1);
    const uint64_t behind = there & (~uint64_t{1} << at);
    const uint64_t further = behind & (behind - 1);
    const auto gone = static_cast<size_t>(__builtin_ctzll(behind));
    previous = static_cast<size_t>(63 - __builtin_clzll(there & ((uint64_t{1} << at) - 1)));
    there ^= behind ^ further;
    merges[gone] = MergeTable::kNone;
    ids[at] = static_cast<uint32_t>(least) & table.no_id();
    with_next = table.AskFor(ids[at], ids[__builtin_ctzll(further)]);
    with_previous = table.AskFor(ids[previous], ids[at]);
    return true;
  }
  void Append(std::vector<uint32_t>& to) const {
    uint64_t left = there & ~uint64_t{1};
    for (; (left & (left - 1)) != 0; left &= left - 1) to.push_back(ids[__builtin_ctzll(left)]);
  }
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_BPE_SHORT_WORD_H_
