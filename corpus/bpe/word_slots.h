// A hash table from short words to their ids, one cache line for each look-up.
#ifndef CAIRN_CORPUS_BPE_WORD_SLOTS_H_
#define CAIRN_CORPUS_BPE_WORD_SLOTS_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "corpus/bpe/huge_pages.h"
#include "corpus/bpe/word_key.h"

namespace cairn::corpus {

// A word of up to 8 * n - 1 bytes as n machine words: its bytes, zeros, and its length in the last byte. No word is all
// zeros.
template <size_t n>
struct SlotKey {
  std::array<uint64_t, n> words;

  // This uses no && for the reason that WordKey has.
  bool operator==(const SlotKey& other) const {
    uint64_t different = 0;
    for (size_t i = 0; i < n; ++i) different |= words[i] ^ other.words[i];
    return different == 0;
  }
};

// Keys of words of up to 15 bytes, and of 16 to 31 bytes.
using ShortKey = SlotKey<2>;
using MiddleKey = SlotKey<4>;
inline constexpr size_t kShortBytes = 15;
inline constexpr size_t kMiddleBytes = 31;

namespace internal {
// Returns 16 bytes from p on with zeros for those from `size` (< 16) on. Memory up to `readable_end` may be read.
inline std::array<uint64_t, 2> LoadPart(const char* p, size_t size, const char* readable_end) {
  const auto& mask = kLengthMasks[size];
  char bytes[16] = {};
  if (readable_end - p < 16) [[unlikely]] {
    std::memcpy(bytes, p, size);
    p = bytes;
  }
  return {LoadWord(p) & mask[0], LoadWord(p + 8) & mask[1]};
}
}  // namespace internal

// These take a word of a fitting size.
inline ShortKey MakeShortKey(const char* p, size_t size, const char* readable_end) {
  const auto part = internal::LoadPart(p, size, readable_end);
  return {{part[0], part[1] | uint64_t{size} << 56}};
}
inline MiddleKey MakeMiddleKey(const char* p, size_t size, const char* readable_end) {
  const auto part = internal::LoadPart(p + 16, size - 16, readable_end);
  return {{LoadWord(p), LoadWord(p + 8), part[0], part[1] | uint64_t{size} << 56}};
}

inline uint64_t HashSlotKey(const ShortKey& key) {
  return MixHash(key.words[0] ^ 0xA0761D6478BD642Fu, key.words[1] ^ 0xE7037ED1A0B428DBu);
}
inline uint64_t HashSlotKey(const MiddleKey& key) {
  return MixHash(key.words[0] ^ 0xA0761D6478BD642Fu, key.words[1] ^ 0xE7037ED1A0B428DBu) +
         MixHash(key.words[2] ^ 0x8EBC6AF09C88C6E3u, key.words[3] ^ 0x589965CC75374CC3u);
}

// A table of words with up to kIds ids each. Open addressing: a word is in the first slot of the line that its hash
// names, or in the next free one. A word with more ids has kElsewhere, and the owner's number instead of ids. Not
// thread-safe, except that several threads may call const members.
template <typename Key, size_t kIds>
class WordSlots {
 public:
  struct alignas(sizeof(Key) + (kIds + 1) * sizeof(uint32_t)) Slot {
    Key key{};
    uint32_t ids[kIds] = {};
    uint32_t count = 0;  // 0 in a free slot
  };
  static constexpr size_t kMostIds = kIds;
  static constexpr uint32_t kElsewhere = ~uint32_t{0};

  // `most` is a power of two: the table never has more slots.
  explicit WordSlots(size_t most) : slots_(std::min(kFirst, most)), most_(most) {}

  size_t size() const { return size_; }
  // The owner must clear the table before it adds a word to a full one.
  bool full() const { return 4 * size_ >= 3 * most_; }

  void AskFor(uint64_t hash) const { __builtin_prefetch(&slots_[Home(hash)]); }
  // Returns the word's slot, or null. It is valid until a word is added.
  const Slot* Find(const Key& key, uint64_t hash) const {
    size_t i = Home(hash);
    if constexpr (kPerLine == 2) {  // a processor cannot predict in which of them the word is, and need not
      i += slots_[i + 1].key == key;
    }
    for (; !(slots_[i].key == key); i = (i + 1) & (slots_.size() - 1)) {
      if (slots_[i].count == 0) return nullptr;
    }
    return &slots_[i];
  }
  // Adds a word that is not there, and returns its slot, whose ids the caller writes; it has one id until then.
  Slot& Add(const Key& key, uint64_t hash) {
    if (4 * (size_ + 1) > 3 * slots_.size() && slots_.size() < most_) Grow();
    Slot& slot = Free(hash);
    slot.key = key;
    slot.count = 1;
    ++size_;
    return slot;
  }
  void Clear() {
    slots_ = HugeVector<Slot>(std::min(kFirst, most_));
    size_ = 0;
  }

 private:
  static constexpr size_t kFirst = size_t{1} << 12;
  static constexpr size_t kPerLine = std::max<size_t>(64 / sizeof(Slot), 1);

  size_t Home(uint64_t hash) const { return hash & (slots_.size() - kPerLine); }
  Slot& Free(uint64_t hash) {
    size_t i = Home(hash);
    while (slots_[i].count != 0) i = (i + 1) & (slots_.size() - 1);
    return slots_[i];
  }
  void Grow() {
    HugeVector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.count != 0) Free(HashSlotKey(slot.key)) = slot;
    }
  }

  HugeVector<Slot> slots_;  // a power of two
  size_t most_;
  size_t size_ = 0;
};

using ShortSlots = WordSlots<ShortKey, 3>;
using MiddleSlots = WordSlots<MiddleKey, 7>;
static_assert(sizeof(ShortSlots::Slot) == 32 && sizeof(MiddleSlots::Slot) == 64);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_BPE_WORD_SLOTS_H_
