// The arithmetic of the kernels that compute CRCs on a GPU. It compiles for the device and for the host. On the host,
// tests and the stand-in for CUDA's driver run the same code, one lane after the other.
//
// A CRC of n bits without its initial and final inversion ("raw", or the remainder) is linear: that of bytes is the sum
// (XOR) over their words of n bits of word * x^(n * (words behind it + 1)) modulo the polynomial. So each of the 32
// lanes of a warp takes every 32nd piece of 16 bytes, which makes the loads of the warp adjacent. For each further row
// of 512 bytes a lane multiplies its sum by x^4096 (Horner's rule). At the end the sums of neighbouring lanes are
// joined, then those of neighbouring pairs, and so on. Each join takes one multiplication by a constant.
//
// Polynomials are reflected as in CRC32C: the highest bit is x^0, bit 0 is x^(n - 1).
#ifndef CAIRN_GPU_COPY_CRC_LANES_H_
#define CAIRN_GPU_COPY_CRC_LANES_H_

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

namespace cairn::crc_lanes {

using Word = unsigned int;        // 32 bits
using Long = unsigned long long;  // 64 bits, on host and device

// Bytes whose blocks the kernel sums. Blocks are numbered consecutively over all ranges.
struct Range {
  Long address;
  Long bytes;
  Long first_block;
  Long block_bytes;  // of each block but the last, which may be shorter; from 1 to kBlockBytes
};

constexpr Word kLanes = 32;
constexpr Word kLaneBytes = 16;
constexpr Word kRowBytes = kLanes * kLaneBytes;
// One warp sums one block, which has no more bytes.
constexpr Word kBlockBytes = 1 << 16;
constexpr Word kThreads = 512;
constexpr Word kWarps = kThreads / kLanes;

// To multiply a sum by x^4096, it is divided into parts. A table has, for each value of each part, the product of the
// value and x^4096. More parts need more instructions, which limit the kernel's speed, and fewer parts more shared
// memory. Each of the lanes that look into the table at one time has a copy of it in memory banks of its own.
constexpr Word kTableEntries = 256;

struct Crc32c {
  using Sum = Word;
  static constexpr Sum kPolynomial = 0x82F63B78;
  static constexpr char kKernelName[] = "cairn_crc32c";
  static constexpr Word kParts = 6;
  static constexpr Word kTableCopies = kLanes;
  // Part 0 has the lowest bits.
  static CAIRN_LANE_FUNCTION Word PartBits(Word part) { return part < 2 ? 6 : 5; }
  static CAIRN_LANE_FUNCTION Word PartShift(Word part) { return part < 2 ? 6 * part : 5 * part + 2; }
  // Returns the index of the table entry for the value 0 of a part. The entries for its other values follow.
  static CAIRN_LANE_FUNCTION Word PartEntry(Word part) { return part < 2 ? 64 * part : 64 + 32 * part; }
  static CAIRN_LANE_FUNCTION Word PartOfEntry(Word entry) { return entry < 128 ? entry / 64 : entry / 32 - 2; }
};

// CRC-64/XZ.
struct Crc64 {
  using Sum = Long;
  static constexpr Sum kPolynomial = 0xC96C5795D7870F42;
  static constexpr char kKernelName[] = "cairn_crc64";
  static constexpr Word kParts = 16;
  // Half of a warp reads 64-bit values at one time.
  static constexpr Word kTableCopies = kLanes / 2;
  static CAIRN_LANE_FUNCTION Word PartBits(Word) { return 4; }
  static CAIRN_LANE_FUNCTION Word PartShift(Word part) { return 4 * part; }
  static CAIRN_LANE_FUNCTION Word PartEntry(Word part) { return 16 * part; }
  static CAIRN_LANE_FUNCTION Word PartOfEntry(Word entry) { return entry / 16; }
};

// Returns the index of the range that contains a block: the last range that begins at or before the block.
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

template <typename Code>
struct Lanes {
  using Sum = typename Code::Sum;
  static constexpr Word kSumBits = 8 * sizeof(Sum);
  static constexpr Sum kOne = Sum{1} << (kSumBits - 1);
  // So many words has a lane's piece of a row.
  static constexpr Word kWords = kLaneBytes / sizeof(Sum);

  static CAIRN_LANE_FUNCTION Sum TimesX(Sum a) { return (a & 1) != 0 ? (a >> 1) ^ Code::kPolynomial : a >> 1; }

  static CAIRN_LANE_FUNCTION Sum Multiply(Sum a, Sum b) {
    Sum product = 0;
    CAIRN_KEEP_LOOP
    for (int bit = kSumBits - 1; bit >= 0; --bit) {
      if ((a >> bit & 1) != 0) product ^= b;
      b = TimesX(b);
    }
    return product;
  }

  // Returns x^exponent.
  static CAIRN_LANE_FUNCTION Sum PowerOfX(Word exponent) {
    Sum power = kOne;
    Sum square = kOne >> 1;  // x
    CAIRN_KEEP_LOOP
    for (; exponent != 0; exponent >>= 1) {
      if ((exponent & 1) != 0) power = Multiply(power, square);
      square = Multiply(square, square);
    }
    return power;
  }

  // Returns one entry of the table: the product of x^4096 and a part's value, shifted to the part's position in the
  // sum.
  static CAIRN_LANE_FUNCTION Sum TableEntry(Word entry) {
    constexpr Sum kRow = PowerOfX(8 * kRowBytes);
    const Word part = Code::PartOfEntry(entry);
    return Multiply(static_cast<Sum>(entry - Code::PartEntry(part)) << Code::PartShift(part), kRow);
  }

  // Returns a * x^kExponent. The power is computed at compile time.
  template <Word kExponent>
  static CAIRN_LANE_FUNCTION Sum TimesPowerOfX(Sum a) {
    Sum power = PowerOfX(kExponent);
    Sum product = 0;
    CAIRN_UNROLL
    for (int bit = kSumBits - 1; bit >= 0; --bit) {
      if ((a >> bit & 1) != 0) product ^= power;
      power = TimesX(power);
    }
    return product;
  }

  static CAIRN_LANE_FUNCTION Sum LoadSum(const unsigned char* bytes) {
    Sum sum = 0;
    CAIRN_UNROLL
    for (Word i = 0; i < sizeof(Sum); ++i) sum |= static_cast<Sum>(bytes[i]) << (8 * i);
    return sum;
  }

  // Returns the raw CRC of `bytes`. It is slow; use it for few bytes.
  static CAIRN_LANE_FUNCTION Sum RawOfBytes(const unsigned char* bytes, Word count) {
    Sum crc = 0;
    CAIRN_KEEP_LOOP
    for (Word i = 0; i < count; ++i) {
      crc ^= bytes[i];
      CAIRN_KEEP_LOOP
      for (int bit = 0; bit < 8; ++bit) crc = TimesX(crc);
    }
    return crc;
  }

  // Returns sum * x^4096. `table(sum, part)` returns the table entry for the value of that part of the sum.
  template <typename Table>
  static CAIRN_LANE_FUNCTION Sum NextRow(Sum sum, const Table& table) {
    Sum next = 0;
    CAIRN_UNROLL
    for (Word part = 0; part < Code::kParts; ++part) next ^= table(sum, part);
    return next;
  }

  // A lane's piece of a row.
  struct Piece {
    Sum word[kWords];
  };

  static CAIRN_LANE_FUNCTION Piece LoadPiece(const unsigned char* bytes) {
    Piece piece = {};
    CAIRN_UNROLL
    for (Word i = 0; i < kWords; ++i) piece.word[i] = LoadSum(bytes + i * sizeof(Sum));
    return piece;
  }

  // Returns the sums of one lane over all rows of a block, one for each word of the lane's pieces. `load(offset)` reads
  // 16 bytes of the block.
  template <typename Load, typename Table>
  static CAIRN_LANE_FUNCTION Piece LaneRows(Word rows, Word lane, const Load& load, const Table& table) {
    Piece sums = {};
    for (Word row = 0; row < rows; ++row) {
      const Piece next = load(row * kRowBytes + lane * kLaneBytes);
      CAIRN_UNROLL
      for (Word i = 0; i < kWords; ++i) sums.word[i] = NextRow(sums.word[i], table) ^ next.word[i];
    }
    return sums;
  }

  // Joins the sums of a lane into one.
  static CAIRN_LANE_FUNCTION Sum JoinWords(const Piece& sums) {
    Sum sum = sums.word[0];
    CAIRN_UNROLL
    for (Word i = 1; i < kWords; ++i) sum = TimesPowerOfX<kSumBits>(sum) ^ sums.word[i];
    return sum;
  }

  // Joins the sum of kDistance lanes and the sum of the next kDistance lanes.
  template <Word kDistance>
  static CAIRN_LANE_FUNCTION Sum Join(Sum first, Sum second) {
    return TimesPowerOfX<8 * kLaneBytes * kDistance>(first) ^ second;
  }

  // Returns the raw CRC of all rows, from the sum of all lanes, shifted past the `tail` bytes behind the last row.
  static CAIRN_LANE_FUNCTION Sum ShiftRows(Sum sum, Word tail) {
    if (sum == 0) return 0;
    return tail == 0 ? TimesPowerOfX<kSumBits>(sum) : Multiply(sum, PowerOfX(kSumBits + 8 * tail));
  }

  // Returns a lane's share of the raw CRC of the `tail` bytes behind the last whole row of a block.
  static CAIRN_LANE_FUNCTION Sum LaneTail(const unsigned char* bytes, Word tail, Word lane) {
    const Word begin = lane * kLaneBytes;
    if (begin >= tail) return 0;
    const Word count = tail - begin < kLaneBytes ? tail - begin : kLaneBytes;
    return Multiply(RawOfBytes(bytes + begin, count), PowerOfX(8 * (tail - begin - count)));
  }
};

}  // namespace cairn::crc_lanes

#undef CAIRN_UNROLL
#undef CAIRN_KEEP_LOOP
#undef CAIRN_LANE_FUNCTION

#endif  // CAIRN_GPU_COPY_CRC_LANES_H_
