// Finds the merge of a pair of tokens in one cache line.
#ifndef CAIRN_CORPUS_BPE_MERGE_TABLE_H_
#define CAIRN_CORPUS_BPE_MERGE_TABLE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "corpus/bpe/huge_pages.h"

namespace cairn::corpus {

// As std::min, but of values: of references compilers make jumps, which processors cannot predict.
inline uint64_t Least(uint64_t a, uint64_t b) { return a < b ? a : b; }

// A hash table whose lines have eight slots of 64 bits. A slot is the part of the pair's hash that the number of its
// line does not tell, then the rank, then the result. The hash of a pair is a permutation of all pairs, so no two pairs
// look the same. Built once, then immutable and thread-safe.
class MergeTable {
 public:
  struct Merge {
    uint32_t left, right, rank, result;
  };

  // Greater than any other value.
  static constexpr uint64_t kNone = ~uint64_t{0};
  // The values of merges take at most so many bits.
  static constexpr int kValueBits = 57;

  // Makes the table of merges whose pairs differ. `most_id` is the largest id that Find() will be asked for. Of numbers
  // so large that a slot has no room for them, it makes a table that is empty().
  MergeTable(const std::vector<Merge>& merges, uint32_t most_id);
  MergeTable() = default;

  bool empty() const { return lines_.empty(); }
  // An id that is in no pair, and may be looked up too.
  uint32_t no_id() const { return static_cast<uint32_t>((uint64_t{1} << id_bits_) - 1); }
  // Where a pair is looked up.
  struct Place {
    size_t line;
    uint64_t tag;
  };
  // Brings what Find() will read into the processor's cache.
  Place AskFor(uint32_t left, uint32_t right) const {
    const uint64_t hash = (uint64_t{left} << id_bits_ | right) * 0x9E3779B97F4A7C15u & pair_mask_;
    const Place place = {hash * lines_.size() >> 2 * id_bits_, (hash & tag_mask_) << value_bits_};
    __builtin_prefetch(&lines_[place.line]);
    return place;
  }
  // Returns the merge of a pair: its rank, then id_bits() bits of the result; or kNone. Not for an empty() table.
  uint64_t Find(const Place& place) const {
    for (size_t at = place.line;; at = at + 1 == lines_.size() ? 0 : at + 1) {
      const uint64_t* const slots = lines_[at].slots;
      // Every slot but the pair's differs in its upper bits, so the pair's is the least. No branch depends on it.
      const uint64_t a = Least((slots[0] & ~kOverflow) ^ place.tag, slots[1] ^ place.tag);
      const uint64_t b = Least(slots[2] ^ place.tag, slots[3] ^ place.tag);
      const uint64_t c = Least(slots[4] ^ place.tag, slots[5] ^ place.tag);
      const uint64_t d = Least(slots[6] ^ place.tag, slots[7] ^ place.tag);
      const uint64_t least = Least(Least(a, b), Least(c, d));
      if (slots[0] & kOverflow) [[unlikely]] {
        if (least >= limit_) continue;
      }
      return least < limit_ ? least : kNone;
    }
  }
  uint64_t Find(uint32_t left, uint32_t right) const { return Find(AskFor(left, right)); }
  int id_bits() const { return id_bits_; }

 private:
  struct alignas(64) Line {
    uint64_t slots[8] = {kFree, kFree, kFree, kFree, kFree, kFree, kFree, kFree};
  };
  // Makes the table with so many lines. Returns false if some line has far too many pairs.
  bool Fill(const std::vector<Merge>& merges, uint32_t most_id, size_t lines);
  static bool Put(Line& line, uint64_t slot);

  static constexpr uint64_t kOverflow = uint64_t{1} << 63;  // in a line's first slot: the next line goes on with it
  static constexpr uint64_t kFree = ~kOverflow;

  HugeVector<Line> lines_;
  int id_bits_ = 0;
  int value_bits_ = 0;      // of a rank and a result
  uint64_t pair_mask_ = 0;  // has 2 * id_bits_ bits
  uint64_t tag_mask_ = 0;
  uint64_t limit_ = 0;  // greater than each value
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_BPE_MERGE_TABLE_H_
