// Ids of words seen before.
#ifndef CAIRN_CORPUS_BPE_ID_CACHE_H_
#define CAIRN_CORPUS_BPE_ID_CACHE_H_

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "corpus/bpe/word_key.h"

namespace cairn::corpus {

// Forgets everything when it has become large, so that its memory is bounded (about 100 MiB) on any text.
// Not thread-safe.
class IdCache {
 public:
  static constexpr size_t kMaxWordBytes = 255;  // longer ones are rare and not kept

  IdCache() : slots_(kFirstSlots), mask_(kFirstSlots - 1) {}

  void Prefetch(uint64_t hash) const { __builtin_prefetch(&slots_[hash & mask_]); }

  // Appends the ids of the word and returns true, if it is known.
  bool Find(const WordKey& key, uint64_t hash, std::string_view word, std::vector<uint32_t>& ids) const {
    for (size_t i = hash & mask_;; i = (i + 1) & mask_) {
      const Slot& slot = slots_[i];
      if (slot.count == kFree) return false;
      if (!Same(slot, key, word)) continue;
      if (slot.count <= kInlineIds) {
        // One store of all, then the size that counts: no loop for the common case.
        const size_t size = ids.size();
        ids.resize(size + kInlineIds);
        std::memcpy(ids.data() + size, slot.ids, sizeof(slot.ids));
        ids.resize(size + slot.count);
      } else {
        ids.insert(ids.end(), long_ids_.begin() + slot.ids[0], long_ids_.begin() + slot.ids[0] + slot.count);
      }
      return true;
    }
  }

  // The word must not be known.
  void Add(WordKey key, uint64_t hash, std::string_view word, const uint32_t* ids, size_t count) {
    if (word.size() > kMaxWordBytes) return;
    if (used_ >= kMaxWords || bytes_.size() > kMaxBytes || long_ids_.size() > kMaxBytes / 4) *this = IdCache();
    if ((used_ + 1) * 2 > slots_.size()) Grow();
    ++used_;
    if (key.is_long()) {
      key.high = WordKey::kLongTag | bytes_.size();
      bytes_ += static_cast<char>(word.size());
      bytes_ += word;
    }
    Slot slot = {key, static_cast<uint32_t>(count), {}};
    if (count <= kInlineIds) {
      std::memcpy(slot.ids, ids, count * sizeof(uint32_t));
    } else {
      slot.ids[0] = static_cast<uint32_t>(long_ids_.size());
      long_ids_.insert(long_ids_.end(), ids, ids + count);
    }
    size_t i = hash & mask_;
    while (slots_[i].count != kFree) i = (i + 1) & mask_;
    slots_[i] = slot;
  }

 private:
  static constexpr uint32_t kFree = ~uint32_t{0};
  static constexpr size_t kInlineIds = 9;
  static constexpr size_t kFirstSlots = size_t{1} << 14;
  static constexpr size_t kMaxWords = size_t{1} << 19;
  static constexpr size_t kMaxBytes = size_t{32} << 20;

  struct Slot {
    WordKey key;
    uint32_t count = kFree;
    uint32_t ids[kInlineIds] = {};  // up to nine; of more, where they begin in long_ids_
  };
  static_assert(sizeof(Slot) == 64);

  bool Same(const Slot& slot, const WordKey& key, std::string_view word) const {
    if (!key.is_long()) return slot.key == key;
    if (slot.key.low != key.low || !slot.key.is_long()) return false;
    const char* const p = bytes_.data() + (slot.key.high & ~WordKey::kLongTag);
    return static_cast<uint8_t>(*p) == word.size() && std::memcmp(p + 1, word.data(), word.size()) == 0;
  }

  void Grow() {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    mask_ = slots_.size() - 1;
    for (const Slot& slot : old) {
      if (slot.count == kFree) continue;
      size_t i = HashKey(slot.key) & mask_;
      while (slots_[i].count != kFree) i = (i + 1) & mask_;
      slots_[i] = slot;
    }
  }

  std::vector<Slot> slots_;  // a power of two
  size_t mask_;
  size_t used_ = 0;
  std::string bytes_;  // of long words: length, bytes
  std::vector<uint32_t> long_ids_;
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_BPE_ID_CACHE_H_
