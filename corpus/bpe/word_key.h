// Makes words keys of hash tables: a word of up to 23 bytes becomes three machine words, a longer one its hash.
#ifndef CAIRN_CORPUS_BPE_WORD_KEY_H_
#define CAIRN_CORPUS_BPE_WORD_KEY_H_

#include <array>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace cairn::corpus {

// A word of up to 23 bytes is held as its bytes, padded with zeros, with its length in the last byte. A longer word is
// held as its hash, then kLongTag and what the table's owner puts into the low 56 bits.
struct WordKey {
  static constexpr uint64_t kLongTag = uint64_t{0xFF} << 56;
  static constexpr size_t kInlineBytes = 23;

  uint64_t low = 0;
  uint64_t middle = 0;
  uint64_t high = 0;

  bool is_long() const { return high >= kLongTag; }
  // Returns the text of a short word, which is valid as long as the key.
  std::string_view word() const { return {reinterpret_cast<const char*>(this), static_cast<size_t>(high >> 56)}; }
  // This uses no || and &&: a processor cannot predict which of the words differs, and needs no prediction this way.
  bool operator==(const WordKey& other) const {
    return ((low ^ other.low) | (middle ^ other.middle) | (high ^ other.high)) == 0;
  }
};

// The folded 128-bit multiplication that wyhash mixes with (Wang Yi, 2019).
inline uint64_t MixHash(uint64_t a, uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

inline uint64_t LoadWord(const char* p) {
  uint64_t value;
  std::memcpy(&value, p, sizeof(value));
  return value;
}

inline uint64_t HashKey(const WordKey& key) {
  if (key.is_long()) return key.low;
  return MixHash(key.low ^ 0xA0761D6478BD642Fu, key.middle ^ 0xE7037ED1A0B428DBu) +
         MixHash(key.high, 0x8EBC6AF09C88C6E3u);
}

// Hashes a word of 16 bytes or more.
inline uint64_t HashLongWord(const char* p, size_t size) {
  uint64_t hash = size * 0x9E3779B97F4A7C15u;
  const char* const tail = p + size - 16;
  for (size_t left = size; left > 16; left -= 16, p += 16) {
    hash = MixHash(LoadWord(p) ^ 0xA0761D6478BD642Fu, LoadWord(p + 8) ^ hash ^ 0xE7037ED1A0B428DBu);
  }
  return MixHash(LoadWord(tail) ^ 0x8EBC6AF09C88C6E3u, LoadWord(tail + 8) ^ hash);
}

namespace internal {
// For each length, says which bits of the three machine words belong to a word of that many bytes.
constexpr std::array<std::array<uint64_t, 3>, 24> MakeLengthMasks() {
  std::array<std::array<uint64_t, 3>, 24> masks{};
  for (size_t length = 0; length < 24; ++length) {
    for (size_t i = 0; i < 3; ++i) {
      const size_t bytes = length <= 8 * i ? 0 : length - 8 * i;
      masks[length][i] = bytes >= 8 ? ~uint64_t{0} : (uint64_t{1} << (8 * bytes)) - 1;
    }
  }
  return masks;
}
inline constexpr auto kLengthMasks = MakeLengthMasks();
}  // namespace internal

// Returns the key of the `size` bytes at `p`. Memory up to `readable_end` may be read.
inline WordKey MakeWordKey(const char* p, size_t size, const char* readable_end) {
  if (size > WordKey::kInlineBytes) return {HashLongWord(p, size), 0, WordKey::kLongTag};
  const auto& mask = internal::kLengthMasks[size];
  char bytes[24] = {};
  if (readable_end - p < 24) {
    std::memcpy(bytes, p, size);
    p = bytes;
  }
  return {LoadWord(p) & mask[0], LoadWord(p + 8) & mask[1], (LoadWord(p + 16) & mask[2]) | uint64_t{size} << 56};
}

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_BPE_WORD_KEY_H_
