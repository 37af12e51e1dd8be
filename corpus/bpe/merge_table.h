// Finds the merge of a pair of tokens by one look into memory.
#ifndef CAIRN_CORPUS_BPE_MERGE_TABLE_H_
#define CAIRN_CORPUS_BPE_MERGE_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "corpus/bpe/huge_pages.h"

namespace cairn::corpus {

// A perfect hash table by displacement: E. Fox, L. Heath, Q. Chen and A. Daoud, "Practical minimal perfect hash
// functions for large databases", CACM 35 (1992). A pair's hash names its bucket and a slot, and the bucket says by how
// much its pairs are displaced, so that each pair has a slot of its own. A slot is the part of the hash that slot and
// bucket do not tell, then the rank, then the result. The hash is a permutation of all pairs, so no two pairs look the
// same. Built once, then immutable and thread-safe.
class MergeTable {
 public:
  struct Merge {
    uint32_t left, right, rank, result;
  };

  // Greater than any other value, also where numbers have a sign.
  static constexpr uint64_t kNone = ~uint64_t{0} >> 1;

  // Makes the table of merges whose pairs differ. `most_id` is the largest id that Find() will be asked for. Of numbers
  // so large that a slot has no room for them, and of pairs that were made up so that no hash serves, it makes a table
  // that is empty().
  MergeTable(std::span<const Merge> merges, uint32_t most_id);
  MergeTable() = default;

  bool empty() const { return slots_.empty(); }
  // An id that is in no pair, and may be looked up too.
  uint32_t no_id() const { return static_cast<uint32_t>((uint64_t{1} << id_bits_) - 1); }
  // Where a pair is looked up.
  struct Place {
    size_t slot;
    uint64_t tag;
  };
  // Brings what Find() will read into the processor's cache.
  Place AskFor(uint32_t left, uint32_t right) const {
    const Place place = PlaceOf(Hash(left, right));
    __builtin_prefetch(&slots_[place.slot]);
    return place;
  }
  // Returns the merge of a pair: its rank, then id_bits() bits of the result; or kNone. Not for an empty() table.
  uint64_t Find(const Place& place) const {
    // Other pairs differ in the upper bits.
    const uint64_t merge = slots_[place.slot] ^ place.tag;
    return merge < limit_ ? merge : kNone;
  }
  uint64_t Find(uint32_t left, uint32_t right) const { return Find(PlaceOf(Hash(left, right))); }
  int id_bits() const { return id_bits_; }

 private:
  // Each step can be undone, so this is a permutation.
  uint64_t Hash(uint32_t left, uint32_t right) const {
    uint64_t pair = (uint64_t{left} << id_bits_ | right) * 0x9E3779B97F4A7C15u & pair_mask_;
    pair ^= pair >> id_bits_;
    return pair * factor_ & pair_mask_;
  }
  Place PlaceOf(uint64_t hash) const {
    return {(hash & slot_mask_) ^ displacements_[hash >> bucket_shift_], hash >> slot_bits_ << value_bits_};
  }
  // Makes the table with 2 ** slot_bits slots. Returns false if some bucket finds no room, or not within `tries`, which
  // it lowers.
  bool Fill(std::span<const Merge> merges, int slot_bits, size_t& tries);

  // Its rank is greater than each.
  static constexpr uint64_t kFree = ~uint64_t{0};

  HugeVector<uint64_t> slots_;
  std::vector<uint32_t> displacements_;  // of buckets
  int id_bits_ = 0;
  int value_bits_ = 0;  // of a rank and a result
  int slot_bits_ = 0;
  int bucket_shift_ = 0;
  uint64_t factor_ = 0;
  uint64_t pair_mask_ = 0;  // has 2 * id_bits_ bits
  uint64_t slot_mask_ = 0;
  uint64_t limit_ = 0;  // greater than each value
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_BPE_MERGE_TABLE_H_
