// The arithmetic of the kernel that computes CRC32C on a GPU. It compiles for the device and for the host. On the host,
// tests and the stand-in for CUDA's driver run the same code, one lane after the other.
//
// A CRC without its initial and final inversion ("raw") is linear: the raw CRC of bytes is the sum (XOR) over their
// words of word * x^(32 * (words behind it + 1)) modulo the polynomial. So each of the 32 lanes of a warp takes every
// 32nd piece of 16 bytes, which makes the loads of the warp adjacent. For each further row of 512 bytes a lane
// multiplies its sum by x^4096 (Horner's rule). At the end the sums of neighbouring lanes are joined, then those of
// neighbouring pairs, and so on. Each join takes one multiplication by a constant.
//
// Polynomials are reflected as in CRC32C: bit 31 is x^0, bit 0 is x^31.
#ifndef CAIRN_GPU_COPY_CRC32C_LANES_H_
#define CAIRN_GPU_COPY_CRC32C_LANES_H_

// Loops that run once per block are not unrolled, because the driver compiles the kernel in the trainer's process,
// which should not take long.
#ifdef __CUDACC__
#define CAIRN_LANE_FUNCTION __host__ __device__ constexpr
#define CAIRN_KEEP_LOOP _Pragma("unroll 1")
#define CAIRN_UNROLL _Pragma("unroll")
#else
#define CAIRN_LANE_FUNCTION constexpr
#define CAIRN_KEEP_LOOP
#define CAIRN_UNROLL
#endif

namespace cairn::crc32c {

using Word = unsigned int;        // 32 bits
using Long = unsigned long long;  // 64 bits, on host and device

// One array, as the kernel gets it. Blocks are numbered consecutively over all arrays.
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
constexpr Word kThreads = 512;
constexpr Word kWarps = kThreads / kLanes;

// A word is divided into parts. A table has, for each value of each part, the product of the value and x^4096. Six
// parts are a compromise: fewer parts need more shared memory (six need 32 KiB, with one copy of the table per lane),
// and more parts need more instructions, which limit the kernel's speed.
constexpr Word kParts = 6;
constexpr Word kTableEntries = 256;

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

// Part 0 has the lowest bits.
CAIRN_LANE_FUNCTION Word PartBits(Word part) { return part < 2 ? 6 : 5; }
CAIRN_LANE_FUNCTION Word PartShift(Word part) { return part < 2 ? 6 * part : 5 * part + 2; }
// Returns the index of the table entry for the value 0 of a part. The entries for its other values follow.
CAIRN_LANE_FUNCTION Word PartEntry(Word part) { return part < 2 ? 64 * part : 64 + 32 * part; }

// Returns one entry of the table: the product of x^4096 and a part's value, shifted to the part's position in the word.
CAIRN_LANE_FUNCTION Word TableEntry(Word entry) {
  constexpr Word kRow = PowerOfX(8 * kRowBytes);
  const Word part = entry < 128 ? entry / 64 : entry / 32 - 2;
  return Multiply((entry - PartEntry(part)) << PartShift(part), kRow);
}

// Returns a * x^kExponent. The power is computed at compile time.
template <Word kExponent>
CAIRN_LANE_FUNCTION Word TimesPowerOfX(Word a) {
  Word power = PowerOfX(kExponent);
  Word product = 0;
  CAIRN_UNROLL
  for (int bit = 31; bit >= 0; --bit) {
    if ((a >> bit & 1) != 0) product ^= power;
    power = TimesX(power);
  }
  return product;
}

CAIRN_LANE_FUNCTION Word LoadWord(const unsigned char* bytes) {
  return static_cast<Word>(bytes[0]) | static_cast<Word>(bytes[1]) << 8 | static_cast<Word>(bytes[2]) << 16 |
         static_cast<Word>(bytes[3]) << 24;
}

// Returns the raw CRC of `bytes`. It is slow; use it for few bytes.
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

// Returns sum * x^4096. `table(word, part)` returns the table entry for the value of that part of the word.
template <typename Table>
CAIRN_LANE_FUNCTION Word NextRow(Word sum, const Table& table) {
  Word next = 0;
  CAIRN_UNROLL
  for (Word part = 0; part < kParts; ++part) next ^= table(sum, part);
  return next;
}

// Four adjacent words.
struct Four {
  Word word[4];
};

// Returns the sums of one lane over all rows of a block, one for each of the four words in the lane's 16 bytes.
// `load(offset)` reads 16 bytes of the block.
template <typename Load, typename Table>
CAIRN_LANE_FUNCTION Four LaneRows(Word rows, Word lane, const Load& load, const Table& table) {
  Four sums = {{0, 0, 0, 0}};
  for (Word row = 0; row < rows; ++row) {
    const Four next = load(row * kRowBytes + lane * kLaneBytes);
    CAIRN_UNROLL
    for (Word i = 0; i < 4; ++i) sums.word[i] = NextRow(sums.word[i], table) ^ next.word[i];
  }
  return sums;
}

// Joins the four sums of a lane into one.
CAIRN_LANE_FUNCTION Word JoinWords(const Four& sums) {
  Word sum = sums.word[0];
  CAIRN_UNROLL
  for (Word i = 1; i < 4; ++i) sum = TimesPowerOfX<32>(sum) ^ sums.word[i];
  return sum;
}

// Joins the sum of kDistance lanes and the sum of the next kDistance lanes.
template <Word kDistance>
CAIRN_LANE_FUNCTION Word Join(Word first, Word second) {
  return TimesPowerOfX<8 * kLaneBytes * kDistance>(first) ^ second;
}

// Returns the raw CRC of all rows, from the sum of all lanes, shifted past the `tail` bytes behind the last row.
CAIRN_LANE_FUNCTION Word ShiftRows(Word sum, Word tail) {
  return tail == 0 ? TimesPowerOfX<32>(sum) : Multiply(sum, PowerOfX(32 + 8 * tail));
}

// Returns a lane's share of the raw CRC of the `tail` bytes behind the last whole row of a block.
CAIRN_LANE_FUNCTION Word LaneTail(const unsigned char* bytes, Word tail, Word lane) {
  const Word begin = lane * kLaneBytes;
  if (begin >= tail) return 0;
  const Word count = tail - begin < kLaneBytes ? tail - begin : kLaneBytes;
  return Multiply(RawOfBytes(bytes + begin, count), PowerOfX(8 * (tail - begin - count)));
}

// Returns the index of the range that contains a block: the last range with bytes that begins at or before the block.
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

#undef CAIRN_UNROLL
#undef CAIRN_KEEP_LOOP
#undef CAIRN_LANE_FUNCTION

#endif  // CAIRN_GPU_COPY_CRC32C_LANES_H_
