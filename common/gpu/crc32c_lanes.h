// The arithmetic of the kernel that computes CRC32C on a GPU. It compiles for the device and for the host, where tests,
// and the stand-in for CUDA's driver, run the same code lane by lane.
//
// A CRC without its initial and final inversion ("raw") is linear: the raw CRC of bytes is the sum (XOR) over their
// words of word * x^(32 * (words behind it + 1)) modulo the polynomial. So the 32 lanes of a warp each take every 32nd
// piece of 16 bytes, which makes their loads lie side by side, multiply what they have by x^4096 for each further row
// of 512 bytes (Horner's rule), and are added at the end, each shifted to its place.
//
// Polynomials are reflected as in CRC32C: bit 31 is x^0, bit 0 is x^31.
#ifndef CAIRN_COMMON_GPU_CRC32C_LANES_H_
#define CAIRN_COMMON_GPU_CRC32C_LANES_H_

// Loops that run once for a block stay loops, because the driver compiles the kernel in the trainer's process.
#ifdef __CUDACC__
#define CAIRN_LANE_FUNCTION __host__ __device__ inline
#define CAIRN_KEEP_LOOP _Pragma("unroll 1")
#else
#define CAIRN_LANE_FUNCTION inline
#define CAIRN_KEEP_LOOP
#endif

namespace cairn::crc32c {

using Word = unsigned int;        // 32 bits
using Long = unsigned long long;  // 64 bits, on host and device

// One array, as the kernel is given it. Blocks are counted through over all arrays.
struct Range {
  Long address;
  Long bytes;
  Long first_block;
};

constexpr char kKernelName[] = "cairn_crc32c";
constexpr Word kLanes = 32;
constexpr Word kLaneBytes = 16;
constexpr Word kRowBytes = kLanes * kLaneBytes;
// One warp sums one block.
constexpr Word kBlockBytes = 1 << 16;
constexpr Word kThreads = 256;
constexpr Word kWarps = kThreads / kLanes;
// A table holds the multiplication by x^4096: a word has 8 nibbles, and each of them 16 values.
constexpr Word kTableEntries = 128;

constexpr Word kPolynomial = 0x82F63B78;
constexpr Word kOne = Word{1} << 31;

CAIRN_LANE_FUNCTION Word TimesX(Word a) { return (a & 1) != 0 ? (a >> 1) ^ kPolynomial : a >> 1; }

CAIRN_LANE_FUNCTION Word Multiply(Word a, Word b) {
  Word product = 0;
  CAIRN_KEEP_LOOP
  for (int bit = 31; bit >= 0; --bit) {
    if ((a >> bit & 1) != 0) product ^= b;
    b = TimesX(b);
  }
  return product;
}

// Returns x^exponent.
CAIRN_LANE_FUNCTION Word PowerOfX(Word exponent) {
  Word power = kOne;
  Word square = kOne >> 1;  // x
  CAIRN_KEEP_LOOP
  for (; exponent != 0; exponent >>= 1) {
    if ((exponent & 1) != 0) power = Multiply(power, square);
    square = Multiply(square, square);
  }
  return power;
}

// Returns one entry of the table: the product of x^4096 and nibble entry / 16 (0 is the lowest), if that has the value
// entry % 16.
CAIRN_LANE_FUNCTION Word TableEntry(Word entry) {
  return Multiply((entry % 16) << (4 * (entry / 16)), PowerOfX(8 * kRowBytes));
}

CAIRN_LANE_FUNCTION Word LoadWord(const unsigned char* bytes) {
  return static_cast<Word>(bytes[0]) | static_cast<Word>(bytes[1]) << 8 | static_cast<Word>(bytes[2]) << 16 |
         static_cast<Word>(bytes[3]) << 24;
}

// Returns the raw CRC. It is slow, and meant for few bytes.
CAIRN_LANE_FUNCTION Word RawOfBytes(const unsigned char* bytes, Word count) {
  Word crc = 0;
  CAIRN_KEEP_LOOP
  for (Word i = 0; i < count; ++i) {
    crc ^= bytes[i];
    CAIRN_KEEP_LOOP
    for (int bit = 0; bit < 8; ++bit) crc = TimesX(crc);
  }
  return crc;
}

// `table` (kTableEntries) gives the entries as this lane sees them: table(entry).
template <typename Table>
CAIRN_LANE_FUNCTION Word NextRow(Word sum, const Table& table) {
  Word next = 0;
  for (Word nibble = 0; nibble < 8; ++nibble) next ^= table(nibble * 16 + (sum >> (4 * nibble) & 15));
  return next;
}

// Four words that lie side by side.
struct Four {
  Word word[4];
};

// Returns what one lane adds to the raw CRC of a block of `bytes` bytes. `load` reads 16 bytes at an offset into the
// block. The last bytes, which are no whole row, are read from `data`, the block itself.
template <typename Load, typename Table>
CAIRN_LANE_FUNCTION Word LaneSum(const unsigned char* data, Word bytes, Word lane, const Load& load,
                                 const Table& table) {
  const Word rows = bytes / kRowBytes;
  const Word tail = bytes % kRowBytes;
  Four sums = {{0, 0, 0, 0}};
  for (Word row = 0; row < rows; ++row) {
    const Four next = load(row * kRowBytes + lane * kLaneBytes);
    for (Word i = 0; i < 4; ++i) sums.word[i] = NextRow(sums.word[i], table) ^ next.word[i];
  }
  // The four words of the lane are shifted to their places, then their sum past the lanes behind it and the tail.
  const Word x32 = PowerOfX(32);
  Word sum = sums.word[0];
  for (Word i = 1; i < 4; ++i) sum = Multiply(sum, x32) ^ sums.word[i];
  sum = Multiply(sum, PowerOfX(8 * (kLaneBytes * (kLanes - 1 - lane) + tail) + 32));
  const Word begin = lane * kLaneBytes;
  if (begin < tail) {
    const Word count = tail - begin < kLaneBytes ? tail - begin : kLaneBytes;
    sum ^= Multiply(RawOfBytes(data + rows * kRowBytes + begin, count), PowerOfX(8 * (tail - begin - count)));
  }
  return sum;
}

// Returns which range has a block: the last one that begins at it or before, of those that have bytes.
CAIRN_LANE_FUNCTION Word RangeOfBlock(const Range* ranges, Word count, Long block) {
  Word low = 0, high = count;  // the range is in [low, high)
  while (high - low > 1) {
    const Word middle = low + (high - low) / 2;
    if (ranges[middle].first_block <= block) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

}  // namespace cairn::crc32c

#undef CAIRN_KEEP_LOOP
#undef CAIRN_LANE_FUNCTION

#endif  // CAIRN_COMMON_GPU_CRC32C_LANES_H_
