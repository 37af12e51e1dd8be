// Remembers the ids of recent words. Natural text repeats itself, so nearly every word is found here.
#ifndef CAIRN_CORPUS_WORDPIECE_PIECE_CACHE_H_
#define CAIRN_CORPUS_WORDPIECE_PIECE_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace cairn::corpus {

// Has a fixed size and two ways: a new word displaces the older one of its pair. One entry is one cache line. Not
// thread-safe.
class PieceCache {
 public:
  static constexpr size_t kMaxKey = 31;  // bytes
  static constexpr size_t kMaxIds = 7;

  struct Key {
    uint64_t words[4];  // the bytes, zeros, and the length in the last byte
  };
  struct alignas(64) Entry {
    Key key;
    uint32_t count;  // 0: the entry is free
    uint32_t ids[kMaxIds];
  };

  // Has 2^log2_pairs pairs of 128 bytes.
  explicit PieceCache(int log2_pairs = 16) : mask_((size_t{1} << log2_pairs) - 1), entries_(size_t{2} << log2_pairs) {}

  // `readable` bytes from word.data() on must be readable. word.size() must be at most kMaxKey.
  static Key MakeKey(std::string_view word, size_t readable) {
    Key key;
    if (readable >= sizeof(key)) {
      std::memcpy(&key, word.data(), sizeof(key));
      const size_t whole = word.size() / 8, rest = word.size() % 8;
      key.words[whole] &= (uint64_t{1} << (8 * rest)) - 1;
      for (size_t i = whole + 1; i < 4; ++i) key.words[i] = 0;
    } else {
      std::memset(&key, 0, sizeof(key));
      std::memcpy(&key, word.data(), word.size());
    }
    key.words[3] |= uint64_t{word.size()} << 56;
    return key;
  }

  // Returns where a key's entry can be, for Find, and fetches it into the processor's cache.
  size_t Prefetch(const Key& key) const {
    const size_t place = PairOf(key);
    __builtin_prefetch(&entries_[place]);
    __builtin_prefetch(&entries_[place + 1]);
    return place;
  }

  // Returns null if the word is not there.
  const Entry* Find(const Key& key) const { return Find(key, PairOf(key)); }
  const Entry* Find(const Key& key, size_t place) const {
    const Entry* pair = &entries_[place];
    if (Equal(pair[0].key, key) && pair[0].count != 0) return &pair[0];
    if (Equal(pair[1].key, key) && pair[1].count != 0) return &pair[1];
    return nullptr;
  }

  // `count` must be within 1 .. kMaxIds, and the key must not be there.
  void Insert(const Key& key, const uint32_t* ids, size_t count) {
    Entry* pair = &entries_[PairOf(key)];
    pair[1] = pair[0];
    pair[0].key = key;
    pair[0].count = static_cast<uint32_t>(count);
    std::memcpy(pair[0].ids, ids, count * sizeof(uint32_t));
  }

 private:
  static bool Equal(const Key& a, const Key& b) {
    return ((a.words[0] ^ b.words[0]) | (a.words[1] ^ b.words[1]) | (a.words[2] ^ b.words[2]) |
            (a.words[3] ^ b.words[3])) == 0;
  }
  static uint64_t Fold(uint64_t a, uint64_t b) {
    __extension__ using Wide = unsigned __int128;
    const Wide product = Wide{a} * b;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  }
  size_t PairOf(const Key& key) const {
    const uint64_t hash = Fold(key.words[0] ^ 0xA0761D6478BD642F, key.words[1] ^ 0xE7037ED1A0B428DB) ^
                          Fold(key.words[2] ^ 0x8EBC6AF09C88C6E3, key.words[3] ^ 0x589965CC75374CC3);
    return (hash & mask_) * 2;
  }

  size_t mask_;
  std::vector<Entry> entries_;
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_WORDPIECE_PIECE_CACHE_H_
