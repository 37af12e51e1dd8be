// Counts pairs of tokens in an open-addressing table with prefetch.
#ifndef CAIRN_CORPUS_BPE_PAIR_TABLE_H_
#define CAIRN_CORPUS_BPE_PAIR_TABLE_H_

#include <cstdint>
#include <utility>

#include "corpus/bpe/huge_pages.h"

namespace cairn::corpus {

// Not thread-safe.
class PairTable {
 public:
  static constexpr uint32_t kNoSet = ~uint32_t{0};

  struct Slot {
    uint64_t pair = kFree;
    int64_t count = 0;
    uint32_t set = kNoSet;  // the newest set of its places
    uint32_t sets = 0;      // how many sets were made
  };

  static uint64_t Pair(uint32_t left, uint32_t right) { return uint64_t{left} << 32 | right; }

  PairTable() : slots_(kFirstSlots), mask_(kFirstSlots - 1) {}

  void Prefetch(uint64_t pair) const { __builtin_prefetch(&slots_[Hash(pair) & mask_]); }

  // Returns the pair's slot, and makes it if it is not there. The slot is valid until the next call.
  Slot& At(uint64_t pair) {
    for (size_t i = Hash(pair) & mask_;; i = (i + 1) & mask_) {
      Slot& slot = slots_[i];
      if (slot.pair == pair) return slot;
      if (slot.pair == kFree) {
        if (++used_ * 4 > slots_.size() * 3) {
          Grow();
          return At(pair);
        }
        slot.pair = pair;
        return slot;
      }
    }
  }
  // Returns null if the pair is not there.
  Slot* Find(uint64_t pair) { return const_cast<Slot*>(std::as_const(*this).Find(pair)); }
  const Slot* Find(uint64_t pair) const {
    for (size_t i = Hash(pair) & mask_;; i = (i + 1) & mask_) {
      const Slot& slot = slots_[i];
      if (slot.pair == pair) return &slot;
      if (slot.pair == kFree) return nullptr;
    }
  }

 private:
  static constexpr uint64_t kFree = ~uint64_t{0};
  static constexpr size_t kFirstSlots = size_t{1} << 16;

  static size_t Hash(uint64_t pair) {
    pair *= 0x9E3779B97F4A7C15u;
    return pair ^ pair >> 32;
  }

  void Grow() {
    used_ = 0;
    HugeVector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    mask_ = slots_.size() - 1;
    for (const Slot& slot : old) {
      // A pair that is at no place any more is forgotten.
      if (slot.pair == kFree || (slot.count == 0 && slot.sets == 0)) continue;
      size_t i = Hash(slot.pair) & mask_;
      while (slots_[i].pair != kFree) i = (i + 1) & mask_;
      slots_[i] = slot;
      ++used_;
    }
  }

  HugeVector<Slot> slots_;  // a power of two
  size_t mask_;
  size_t used_ = 0;
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_BPE_PAIR_TABLE_H_
