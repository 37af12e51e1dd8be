// Decides the order of a shuffle. Every line gets a 128-bit key from the seed and its place (file, byte offset), and
// the output has the lines sorted by key. Keys are independent and uniform, so every order is equally likely (Sandelius
// 1962: label, then order within labels). The order depends on nothing else: not on memory, threads or the way in which
// the file was read.
#ifndef CAIRN_CORPUS_SHUFFLE_LINE_KEY_H_
#define CAIRN_CORPUS_SHUFFLE_LINE_KEY_H_

#include <compare>
#include <cstdint>
#include <span>

namespace cairn::corpus {

// The place of a line: the number of its file in the list of inputs, and its offset in (decompressed) bytes.
using LinePosition = uint64_t;
inline constexpr int kOffsetBits = 44;  // 16 TiB in one file
inline constexpr uint64_t kMaxOffset = (uint64_t{1} << kOffsetBits) - 1;
inline constexpr uint64_t kMaxFiles = uint64_t{1} << (64 - kOffsetBits);  // about a million
constexpr LinePosition MakePosition(uint64_t file, uint64_t offset) { return file << kOffsetBits | offset; }

__extension__ using Uint128 = unsigned __int128;

struct LineKey {
  uint64_t high;
  uint64_t low;
  auto operator<=>(const LineKey&) const = default;
};

// Encrypts the position with AES-128 (FIPS 197) under a key that SHA-256 makes of the seed. That is a pseudo-random
// permutation, so no two lines share a key. Only one thread may use it at a time.
class LineKeyMaker {
 public:
  explicit LineKeyMaker(uint64_t seed);
  ~LineKeyMaker();
  LineKeyMaker(const LineKeyMaker&) = delete;
  LineKeyMaker& operator=(const LineKeyMaker&) = delete;

  // Computes keys[i] of positions[i]; both have the same size. Batches of a few hundred cost some 3 ns per key.
  void Make(std::span<const LinePosition> positions, std::span<LineKey> keys);

 private:
  void* context_;  // EVP_CIPHER_CTX
};

// A range of LineKey::high: `width` values from `low` on.
struct KeyRange {
  uint64_t low = 0;
  Uint128 width = Uint128{1} << 64;

  // Returns which of `buckets` equal parts holds `high`, which must be a key of this range. Larger keys have larger
  // parts.
  uint32_t BucketOf(uint64_t high, uint32_t buckets) const {
    if (width >> 64 != 0) return static_cast<uint32_t>((Uint128{high} * buckets) >> 64);
    return static_cast<uint32_t>(Uint128{high - low} * buckets / width);
  }
  // Returns the keys of one of those parts.
  KeyRange Part(uint32_t bucket, uint32_t buckets) const {
    const Uint128 begin = (width * bucket + buckets - 1) / buckets;
    const Uint128 end = (width * (bucket + 1) + buckets - 1) / buckets;
    return {low + static_cast<uint64_t>(begin), end - begin};
  }
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_SHUFFLE_LINE_KEY_H_
