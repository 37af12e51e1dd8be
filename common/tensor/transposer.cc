#include "common/tensor/transposer.h"

#include <algorithm>
#include <cstring>

#if defined(__x86_64__) && !defined(CAIRN_PORTABLE)
#define CAIRN_VECTORS
#include <immintrin.h>
// Always inlined, because a call costs more than the work on a few vectors.
#define CAIRN_AVX2 __attribute__((target("avx2")))
#define CAIRN_AVX2_INLINE __attribute__((target("avx2"), always_inline)) inline
#elif defined(__aarch64__) && !defined(CAIRN_PORTABLE)
#define CAIRN_NEON
#include <arm_neon.h>
#endif

namespace cairn {
namespace {

constexpr int64_t kLine = Transposer::kLine;
constexpr int64_t kRun = Transposer::kRun;
constexpr int64_t kSlot = kLine + kRun;  // bytes of one row of the target in the buffer
// How many rows ahead rows are prefetched.
constexpr int64_t kAhead = 8;

template <size_t kBytes>
constexpr int64_t kBlockColumns = 16 / static_cast<int64_t>(kBytes);

// Transposes a group of 2 * kBlockColumns rows, in whole blocks.
template <size_t kBytes>
[[maybe_unused]] void TransposeElements(const std::byte* in, int64_t in_stride, std::byte* out, int64_t columns) {
  constexpr int64_t n = kBlockColumns<kBytes>;
  for (int64_t c = 0; c < (columns + n - 1) / n * n; ++c) {
    for (int64_t r = 0; r < 2 * n; ++r) {
      std::memcpy(out + c * kSlot + r * static_cast<int64_t>(kBytes),
                  in + r * in_stride + c * static_cast<int64_t>(kBytes), kBytes);
    }
  }
}

#if defined(CAIRN_VECTORS)

bool HasAvx2() {
  static const bool has = __builtin_cpu_supports("avx2");
  return has;
}

CAIRN_AVX2_INLINE __m256i Load(const std::byte* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}
CAIRN_AVX2_INLINE void Store(std::byte* to, __m256i value) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), value);
}
CAIRN_AVX2_INLINE void Stream(std::byte* to, __m256i value) {
  _mm256_stream_si256(reinterpret_cast<__m256i*>(to), value);
}

template <size_t kBytes>
CAIRN_AVX2_INLINE __m256i InterleaveLow(__m256i a, __m256i b) {
  if constexpr (kBytes == 1) return _mm256_unpacklo_epi8(a, b);
  if constexpr (kBytes == 2) return _mm256_unpacklo_epi16(a, b);
  if constexpr (kBytes == 4) return _mm256_unpacklo_epi32(a, b);
  return _mm256_unpacklo_epi64(a, b);
}
template <size_t kBytes>
CAIRN_AVX2_INLINE __m256i InterleaveHigh(__m256i a, __m256i b) {
  if constexpr (kBytes == 1) return _mm256_unpackhi_epi8(a, b);
  if constexpr (kBytes == 2) return _mm256_unpackhi_epi16(a, b);
  if constexpr (kBytes == 4) return _mm256_unpackhi_epi32(a, b);
  return _mm256_unpackhi_epi64(a, b);
}

// Transposes two square blocks, one below the other; each uses one half of the vectors. It interleaves rows whose
// distance is half a block, log2(side) times (Eklundh, "A fast computer method for matrix transposing", IEEE
// Transactions on Computers, 1972).
template <size_t kBytes>
CAIRN_AVX2 void TransposeVectors(const std::byte* in, int64_t in_stride, std::byte* out, int64_t columns) {
  constexpr int64_t n = kBlockColumns<kBytes>;
  for (int64_t c = 0; c < columns; c += n, in += 16, out += n * kSlot) {
    // The loop is unrolled, so that the rows stay in registers.
    __m256i a[n], b[n];
#pragma GCC unroll 16
    for (int64_t r = 0; r < n; ++r) {
      const auto* low = reinterpret_cast<const __m128i*>(in + r * in_stride);
      const auto* high = reinterpret_cast<const __m128i*>(in + (r + n) * in_stride);
      a[r] = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(low)), _mm_loadu_si128(high), 1);
    }
#pragma GCC unroll 16
    for (int64_t pass = 1; pass < n; pass *= 2) {
#pragma GCC unroll 16
      for (int64_t r = 0; r < n / 2; ++r) {
        b[2 * r] = InterleaveLow<kBytes>(a[r], a[r + n / 2]);
        b[2 * r + 1] = InterleaveHigh<kBytes>(a[r], a[r + n / 2]);
      }
#pragma GCC unroll 16
      for (int64_t r = 0; r < n; ++r) a[r] = b[r];
    }
#pragma GCC unroll 16
    for (int64_t r = 0; r < n; ++r) Store(out + r * kSlot, a[r]);
  }
}

CAIRN_AVX2_INLINE void CopyLine(const std::byte* from, std::byte* to) {
  const __m256i low = Load(from), high = Load(from + 32);
  Store(to, low);
  Store(to + 32, high);
}
CAIRN_AVX2_INLINE void StreamLine(const std::byte* from, std::byte* to) {
  const __m256i low = Load(from), high = Load(from + 32);
  Stream(to, low);
  Stream(to + 32, high);
}

CAIRN_AVX2 void CopyRuns(const std::byte* from, int64_t from_stride, std::byte* to, int64_t to_stride, int64_t rows) {
  for (int64_t r = 0; r < rows; ++r, from += from_stride, to += to_stride) {
    for (int64_t i = 0; i < kRun; i += kLine) CopyLine(from + i, to + i);
  }
}

// Writes rows of `bytes` bytes from their slots. Whole cache lines are written with stores that bypass the caches. The
// bytes before the first and behind the last whole line of a target's row are written through the caches.
CAIRN_AVX2 void StreamRows(std::byte* row, int64_t bytes, std::byte* to, int64_t to_stride, int64_t rows,
                           std::byte* carry, bool first, bool last) {
  for (int64_t r = 0; r < rows; ++r, row += kSlot, to += to_stride, carry += kLine) {
    const auto skew = static_cast<int64_t>(reinterpret_cast<uintptr_t>(to) & (kLine - 1));
    int64_t at = -skew;
    if (skew != 0 && first) {
      at = std::min(kLine - skew, bytes);
      std::memcpy(to, row, static_cast<size_t>(at));
    } else if (skew != 0) {
      CopyLine(carry, row - kLine);
    }
    for (; at + kLine <= bytes; at += kLine) StreamLine(row + at, to + at);
    if (at == bytes) continue;
    if (last) {
      std::memcpy(to + at, row + at, static_cast<size_t>(bytes - at));
    } else {
      CopyLine(row + bytes - kLine, carry);
    }
  }
}
#else
bool HasAvx2() { return false; }
#endif

#if defined(CAIRN_NEON)

template <size_t kBytes>
inline uint8x16_t InterleaveLow(uint8x16_t a, uint8x16_t b) {
  if constexpr (kBytes == 1) return vzip1q_u8(a, b);
  if constexpr (kBytes == 2) return vreinterpretq_u8_u16(vzip1q_u16(vreinterpretq_u16_u8(a), vreinterpretq_u16_u8(b)));
  if constexpr (kBytes == 4) return vreinterpretq_u8_u32(vzip1q_u32(vreinterpretq_u32_u8(a), vreinterpretq_u32_u8(b)));
  return vreinterpretq_u8_u64(vzip1q_u64(vreinterpretq_u64_u8(a), vreinterpretq_u64_u8(b)));
}
template <size_t kBytes>
inline uint8x16_t InterleaveHigh(uint8x16_t a, uint8x16_t b) {
  if constexpr (kBytes == 1) return vzip2q_u8(a, b);
  if constexpr (kBytes == 2) return vreinterpretq_u8_u16(vzip2q_u16(vreinterpretq_u16_u8(a), vreinterpretq_u16_u8(b)));
  if constexpr (kBytes == 4) return vreinterpretq_u8_u32(vzip2q_u32(vreinterpretq_u32_u8(a), vreinterpretq_u32_u8(b)));
  return vreinterpretq_u8_u64(vzip2q_u64(vreinterpretq_u64_u8(a), vreinterpretq_u64_u8(b)));
}

// The same as for AVX2, with a vector for each row of one block.
template <size_t kBytes>
void TransposeBlock(const std::byte* in, int64_t in_stride, std::byte* out) {
  constexpr int64_t n = kBlockColumns<kBytes>;
  uint8x16_t a[n], b[n];
#pragma GCC unroll 16
  for (int64_t r = 0; r < n; ++r) a[r] = vld1q_u8(reinterpret_cast<const uint8_t*>(in + r * in_stride));
#pragma GCC unroll 16
  for (int64_t pass = 1; pass < n; pass *= 2) {
#pragma GCC unroll 16
    for (int64_t r = 0; r < n / 2; ++r) {
      b[2 * r] = InterleaveLow<kBytes>(a[r], a[r + n / 2]);
      b[2 * r + 1] = InterleaveHigh<kBytes>(a[r], a[r + n / 2]);
    }
#pragma GCC unroll 16
    for (int64_t r = 0; r < n; ++r) a[r] = b[r];
  }
#pragma GCC unroll 16
  for (int64_t r = 0; r < n; ++r) vst1q_u8(reinterpret_cast<uint8_t*>(out + r * kSlot), a[r]);
}

template <size_t kBytes>
void TransposeVectors(const std::byte* in, int64_t in_stride, std::byte* out, int64_t columns) {
  constexpr int64_t n = kBlockColumns<kBytes>;
  for (int64_t c = 0; c < columns; c += n, in += 16, out += n * kSlot) {
    TransposeBlock<kBytes>(in, in_stride, out);
    TransposeBlock<kBytes>(in + n * in_stride, in_stride, out + 16);
  }
}
#endif

void CopyRows(const std::byte* from, int64_t from_stride, std::byte* to, int64_t to_stride, int64_t rows,
              int64_t bytes) {
#if defined(CAIRN_VECTORS)
  if (bytes == kRun && HasAvx2()) return CopyRuns(from, from_stride, to, to_stride, rows);
#endif
  for (int64_t r = 0; r < rows; ++r) {
    std::memcpy(to + r * to_stride, from + r * from_stride, static_cast<size_t>(bytes));
  }
}

template <size_t kBytes>
void TransposeGroup(const std::byte* in, int64_t in_stride, std::byte* out, int64_t columns) {
#if defined(CAIRN_VECTORS)
  if (HasAvx2()) return TransposeVectors<kBytes>(in, in_stride, out, columns);
#endif
#if defined(CAIRN_NEON)
  TransposeVectors<kBytes>(in, in_stride, out, columns);
#else
  TransposeElements<kBytes>(in, in_stride, out, columns);
#endif
}

}  // namespace

struct Transposer::Tile {
  const std::byte* source;
  int64_t source_stride;
  const std::byte* next;  // the source of the tile after this one
  std::byte* target;
  int64_t target_stride;
  int64_t rows;
  int64_t columns;
  bool past_caches;
  bool first;  // true for the first tile of a row of tiles in the target
  bool last;
  std::byte* carries;  // one cache line for each row of the target
};

bool Transposer::IsTransposable(int64_t bytes) { return bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8; }

Transposer::Transposer(int64_t element_bytes, const CastChain& casts, bool large)
    : casts_(casts),
      source_bytes_(element_bytes),
      target_bytes_(casts.size() > 1 ? BytesOf(casts.back()) : element_bytes),
      bytes_(std::min(source_bytes_, target_bytes_)),
      cast_first_(casts.size() > 1 && target_bytes_ <= source_bytes_),
      cast_last_(casts.size() > 1 && !cast_first_),
      large_(large) {
  if (casts.size() == 2) cast_ = FindCast(casts[0], casts[1]);
}

void Transposer::Cast(const std::byte* from, std::byte* to, int64_t count) const {
  if (cast_ != nullptr) return cast_(from, to, static_cast<size_t>(count));
  CastElements(casts_, from, to, static_cast<size_t>(count));
}

void Transposer::Copy(const Plane& plane) {
  const int64_t tile_rows = kRun / target_bytes_, tile_columns = kRun / source_bytes_;
  const int64_t group = 2 * (16 / bytes_);
  // The plane is copied in groups of columns, so that the pages of the target are few enough for the processor's TLB.
  for (int64_t begin = 0; begin < plane.columns; begin += kArea) {
    const int64_t end = std::min(begin + kArea, plane.columns);
    for (int64_t row = 0; row < plane.rows; row += tile_rows) {
      for (int64_t column = begin; column < end; column += tile_columns) {
        Tile tile;
        tile.source = plane.source + row * plane.source_stride + column * source_bytes_;
        tile.source_stride = plane.source_stride;
        tile.target = plane.target + column * plane.target_stride + row * target_bytes_;
        tile.target_stride = plane.target_stride;
        tile.rows = std::min(tile_rows, plane.rows - row);
        tile.columns = std::min(tile_columns, end - column);
        tile.past_caches = large_ && HasAvx2() && plane.rows * target_bytes_ >= kRun;
        tile.first = row == 0;
        tile.last = row + tile.rows == plane.rows;
        tile.next = column + tile.columns < end
                        ? tile.source + kRun
                        : plane.source + (row + tile.rows) * plane.source_stride + begin * source_bytes_;
        tile.carries = carries_ + (column - begin) * kLine;
        for (int64_t r = 0; r < tile.rows; r += group) Transpose(tile, r, std::min(group, tile.rows - r));
        Write(tile);
      }
    }
  }
}

// Packs a group of rows of the source, and casts them if that comes first.
void Transposer::Gather(const Tile& tile, int64_t row, int64_t rows) {
  const int64_t bytes = tile.columns * source_bytes_;
  for (int64_t r = row; r < row + rows; ++r) {
    const std::byte* ahead = r + kAhead < tile.rows ? tile.source + (r + kAhead) * tile.source_stride
                                                    : tile.next + (r + kAhead - tile.rows) * tile.source_stride;
    for (int64_t i = 0; i < kRun; i += kLine) __builtin_prefetch(ahead + i, 0, 2);
    __builtin_prefetch(ahead + kRun - 1, 0, 2);
    const std::byte* from = tile.source + r * tile.source_stride;
    std::byte* to = group_ + (r - row) * kRun;
    if (cast_first_) {
      Cast(from, to, tile.columns);
    } else {
      CopyRows(from, 0, to, 0, 1, bytes);
    }
  }
}

void Transposer::Transpose(const Tile& tile, int64_t row, int64_t rows) {
  const std::byte* in = tile.source + row * tile.source_stride;
  int64_t in_stride = tile.source_stride;
  // A small source is already in the caches, so its whole blocks can be read in place.
  if (large_ || cast_first_ || rows * bytes_ != 32 || tile.columns * bytes_ % 16 != 0) {
    Gather(tile, row, rows);
    in = group_;
    in_stride = kRun;
  }
  std::byte* out = rows_ + kLine + row * bytes_;
  switch (bytes_) {
    case 1:
      return TransposeGroup<1>(in, in_stride, out, tile.columns);
    case 2:
      return TransposeGroup<2>(in, in_stride, out, tile.columns);
    case 4:
      return TransposeGroup<4>(in, in_stride, out, tile.columns);
    default:
      return TransposeGroup<8>(in, in_stride, out, tile.columns);
  }
}

void Transposer::Write(const Tile& tile) {
  const int64_t bytes = tile.rows * target_bytes_;
  const int64_t step = cast_last_ ? kCastRows : tile.columns;
  for (int64_t c = 0; c < tile.columns; c += step) {
    const int64_t count = std::min(step, tile.columns - c);
    std::byte* rows = rows_ + c * kSlot + kLine;
    std::byte* to = tile.target + c * tile.target_stride;
    if (cast_last_) {
      const int64_t whole = (tile.rows + 15) / 16 * 16;  // whole vectors are cast faster than single elements
      for (int64_t r = 0; r < count; ++r) Cast(rows + r * kSlot, cast_rows_ + r * kSlot + kLine, whole);
      rows = cast_rows_ + kLine;
    }
#if defined(CAIRN_VECTORS)
    if (tile.past_caches) {
      StreamRows(rows, bytes, to, tile.target_stride, count, tile.carries + c * kLine, tile.first, tile.last);
      continue;
    }
#endif
    CopyRows(rows, kSlot, to, tile.target_stride, count, bytes);
  }
}

void Transposer::Finish() {
#if defined(CAIRN_VECTORS)
  if (large_) _mm_sfence();
#endif
}

}  // namespace cairn
