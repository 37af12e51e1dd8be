// Words as keys of hash tables: up to 15 bytes as two machine words, longer ones by their hash.
#ifndef CAIRN_CORPUS_BPE_WORD_KEY_H_
#define CAIRN_CORPUS_BPE_WORD_KEY_H_

#include <array>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace cairn::corpus {

// Up to 15 bytes: the bytes, zero-padded, and the length in the last byte. Longer words: their hash, then kLongTag and
// what the table's owner puts into the low 56 bits.
struct WordKey {
  static constexpr uint64_t kLongTag = uint64_t{0xFF} << 56;
  static constexpr size_t kInlineBytes = 15;

  uint64_t low = 0;
  uint64_t high = 0;

  bool is_long() const { return high >= kLongTag; }
  // Of a short word; valid as long as the key.
  std::string_view word() const { return {reinterpret_cast<const char*>(this), static_cast<size_t>(high >> 56)}; }
  bool operator==(const WordKey&) const = default;
};

// Folded 128-bit multiplication, the mixing step of wyhash (Wang Yi, 2019).
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
  return key.is_long() ? key.low : MixHash(key.low ^ 0xA0761D6478BD642Fu, key.high ^ 0xE7037ED1A0B428DBu);
}

// Of more than 15 bytes.
inline uint64_t HashLongWord(const char* p, size_t size) {
  uint64_t hash = size * 0x9E3779B97F4A7C15u;
  const char* const tail = p + size - 16;
  for (size_t left = size; left > 16; left -= 16, p += 16) {
    hash = MixHash(LoadWord(p) ^ 0xA0761D6478BD642Fu, LoadWord(p + 8) ^ hash ^ 0xE7037ED1A0B428DBu);
  }
  return MixHash(LoadWord(tail) ^ 0x8EBC6AF09C88C6E3u, LoadWord(tail + 8) ^ hash);
}

namespace internal {
constexpr std::array<std::array<uint64_t, 2>, 16> MakeLengthMasks() {
  std::array<std::array<uint64_t, 2>, 16> masks{};
  for (size_t length = 0; length < 16; ++length) {
    masks[length][0] = length >= 8 ? ~uint64_t{0} : (uint64_t{1} << (8 * length)) - 1;
    masks[length][1] = length <= 8 ? 0 : (uint64_t{1} << (8 * (length - 8))) - 1;
  }
  return masks;
}
inline constexpr auto kLengthMasks = MakeLengthMasks();
}  // namespace internal

// The key of the `size` bytes at `p`. Memory up to `readable_end` may be read.
inline WordKey MakeWordKey(const char* p, size_t size, const char* readable_end) {
  if (size > WordKey::kInlineBytes) return {HashLongWord(p, size), WordKey::kLongTag};
  if (readable_end - p >= 16) {
    return {LoadWord(p) & internal::kLengthMasks[size][0],
            (LoadWord(p + 8) & internal::kLengthMasks[size][1]) | uint64_t{size} << 56};
  }
  char bytes[16] = {};
  std::memcpy(bytes, p, size);
  return {LoadWord(bytes), LoadWord(bytes + 8) | uint64_t{size} << 56};
}

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_BPE_WORD_KEY_H_
