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

  // Returns 0 if both are the same. It uses no && for the reason that WordKey has.
  uint64_t Difference(const SlotKey& other) const {
    uint64_t different = 0;
    for (size_t i = 0; i < n; ++i) different |= words[i] ^ other.words[i];
    return different;
  }
  bool operator==(const SlotKey& other) const { return Difference(other) == 0; }
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
  if (readable_end - p < 16) [[unlikely]] {
    char bytes[16] = {};
    std::memcpy(bytes, p, size);
    return {LoadWord(bytes), LoadWord(bytes + 8)};
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

// What is known of a word.
struct WordIds {
  static constexpr size_t kFew = 3;
  static constexpr uint32_t kElsewhere = ~uint32_t{0};  // instead of ids, the owner's numbers are there
  static constexpr uint32_t kPending = kElsewhere - 1;  // the owner does not know the ids yet
  static constexpr uint32_t kNew = kElsewhere - 2;      // the word was added just now

  uint32_t ids[kFew] = {};
  uint32_t count = 0;  // 0 in a free slot
};
// There is room for more ids of a longer word.
struct LongerWordIds {
  WordIds first;
  uint32_t more[4] = {};
};

template <typename Key>
struct SlotOf;
template <>
struct alignas(32) SlotOf<ShortKey> {
  ShortKey key{};
  WordIds known_ids;

  WordIds& known() { return known_ids; }
  const WordIds& known() const { return known_ids; }
};
template <>
struct alignas(64) SlotOf<MiddleKey> {
  MiddleKey key{};
  LongerWordIds known_ids;

  WordIds& known() { return known_ids.first; }
  const WordIds& known() const { return known_ids.first; }
};
static_assert(sizeof(SlotOf<ShortKey>) == 32 && sizeof(SlotOf<MiddleKey>) == 64);

// A table of words. Open addressing: a word is in the first slot of the line that its hash names, or in the next free
// one. Not thread-safe, except that several threads may call const members.
template <typename Key>
class WordSlots {
 public:
  using Slot = SlotOf<Key>;

  // `most` is a power of two: the table never has more slots.
  explicit WordSlots(size_t most) : slots_(std::min(kFirst, most)), mask_(slots_.size() - 1), most_(most) {}

  size_t size() const { return size_; }
  // Makes room for `count` more words, so that slots stay where they are while those are added. Returns false if the
  // table would become too large: the owner must clear it first.
  bool MakeRoom(size_t count) {
    if (4 * (size_ + count) > 3 * most_) return false;
    // Half full, few words are in other lines than their own.
    while (2 * (size_ + count) > slots_.size() && slots_.size() < most_) Grow();
    return true;
  }

  void AskFor(uint64_t hash) const { __builtin_prefetch(&slots_[Home(hash)]); }
  // Returns what is known of the word, or null. It is valid until a word is added.
  const WordIds* Find(const Key& key, uint64_t hash) const {
    for (size_t i = Home(hash);; i = (i + 1) & mask_) {
      if (slots_[i].key == key) return &slots_[i].known();
      if (slots_[i].known().count == 0) return nullptr;
    }
  }
  // Returns what is known of the word. If it is not there, it is added with the count kNew, for which there must be
  // room.
  WordIds* FindOrAdd(const Key& key, uint64_t hash) {
    Slot* const home = slots_.data() + Home(hash);
    if constexpr (kPerLine == 2) {
      // A processor cannot predict in which of them the word is, and need not.
      const uint64_t second = home[1].key.Difference(key) == 0;
      if ((home[0].key.Difference(key) & (second - 1)) == 0) [[likely]]
        return &home[second].known();
    }
    return FindOrAddFrom(static_cast<size_t>(home - slots_.data()), key);
  }
  void Clear() {
    slots_ = HugeVector<Slot>(std::min(kFirst, most_));
    mask_ = slots_.size() - 1;
    size_ = 0;
  }

 private:
  static constexpr size_t kFirst = size_t{1} << 12;
  static constexpr size_t kPerLine = std::max<size_t>(64 / sizeof(Slot), 1);

  size_t Home(uint64_t hash) const { return hash & mask_ & ~(kPerLine - 1); }
  [[gnu::noinline]] WordIds* FindOrAddFrom(size_t i, const Key& key) {
    for (; !(slots_[i].key == key); i = (i + 1) & mask_) {
      if (slots_[i].known().count != 0) continue;
      slots_[i].key = key;
      slots_[i].known().count = WordIds::kNew;
      ++size_;
      break;
    }
    return &slots_[i].known();
  }
  void Grow() {
    HugeVector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    mask_ = slots_.size() - 1;
    for (const Slot& slot : old) {
      if (slot.known().count == 0) continue;
      size_t i = Home(HashSlotKey(slot.key));
      while (slots_[i].known().count != 0) i = (i + 1) & mask_;
      slots_[i] = slot;
    }
  }

  HugeVector<Slot> slots_;  // a power of two
  size_t mask_;
  size_t most_;
  size_t size_ = 0;
};

using ShortSlots = WordSlots<ShortKey>;
using MiddleSlots = WordSlots<MiddleKey>;

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_BPE_WORD_SLOTS_H_
