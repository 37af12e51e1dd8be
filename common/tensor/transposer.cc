#include "common/tensor/transposer.h"

#include <algorithm>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
// Inlined by force: a call between vectors costs more than what is done there.
#define CAIRN_AVX2 __attribute__((target("avx2")))
#define CAIRN_AVX2_INLINE __attribute__((target("avx2"), always_inline)) inline
#endif

namespace cairn {
namespace {

// Rows that are fetched before they are needed: more, and rows a power of two apart drive each other out of the cache.
constexpr int64_t kAhead = 8;

template <size_t kBytes>
constexpr int64_t kBlockColumns = 16 / static_cast<int64_t>(kBytes);

// Columns of a group of 2 * kBlockColumns rows, `in_stride` apart, become rows, `out_stride` apart. Whole blocks.
template <size_t kBytes>
void TransposeElements(const std::byte* in, int64_t in_stride, std::byte* out, int64_t out_stride, int64_t columns) {
  constexpr int64_t n = kBlockColumns<kBytes>;
  for (int64_t c = 0; c < (columns + n - 1) / n * n; ++c) {
    for (int64_t r = 0; r < 2 * n; ++r) {
      std::memcpy(out + c * out_stride + r * static_cast<int64_t>(kBytes),
                  in + r * in_stride + c * static_cast<int64_t>(kBytes), kBytes);
    }
  }
}

#if defined(__x86_64__)

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

// Two square blocks, one below the other, each in one half of the vectors: by interleaving rows half a block apart,
// log2(side) times (Eklundh, "A fast computer method for matrix transposing", IEEE Transactions on Computers, 1972).
template <size_t kBytes>
CAIRN_AVX2 void TransposeVectors(const std::byte* in, int64_t in_stride, std::byte* out, int64_t out_stride,
                                 int64_t columns) {
  constexpr int64_t n = kBlockColumns<kBytes>;
  for (int64_t c = 0; c < columns; c += n, in += 16, out += n * out_stride) {
    // Unrolled, so that the rows stay in registers.
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
    for (int64_t r = 0; r < n; ++r) Store(out + r * out_stride, a[r]);
  }
}

CAIRN_AVX2 void StreamLines(const std::byte* from, std::byte* to, int64_t lines) {
  for (int64_t i = 0; i < lines; ++i) {
    const __m256i low = Load(from + 64 * i), high = Load(from + 64 * i + 32);
    Stream(to + 64 * i, low);
    Stream(to + 64 * i + 32, high);
  }
}
#endif

void Prefetch(const std::byte* from, int64_t bytes) {
  const auto skew = static_cast<int64_t>(reinterpret_cast<uintptr_t>(from) & 63);
  for (int64_t i = -skew; i < bytes; i += 64) __builtin_prefetch(from + i, 0, 3);
}

template <size_t kBytes>
void TransposeGroup(const std::byte* in, int64_t in_stride, std::byte* out, int64_t out_stride, int64_t columns) {
#if defined(__x86_64__)
  if (HasAvx2()) return TransposeVectors<kBytes>(in, in_stride, out, out_stride, columns);
#endif
  TransposeElements<kBytes>(in, in_stride, out, out_stride, columns);
}

void TransposeGroup(int64_t bytes, const std::byte* in, int64_t in_stride, std::byte* out, int64_t out_stride,
                    int64_t columns) {
  switch (bytes) {
    case 1:
      return TransposeGroup<1>(in, in_stride, out, out_stride, columns);
    case 2:
      return TransposeGroup<2>(in, in_stride, out, out_stride, columns);
    case 4:
      return TransposeGroup<4>(in, in_stride, out, out_stride, columns);
    default:
      return TransposeGroup<8>(in, in_stride, out, out_stride, columns);
  }
}

}  // namespace

struct Transposer::Tile {
  const std::byte* source;
  int64_t stride;         // between rows of the source
  const std::byte* next;  // source of the tile after this one
  std::byte* target;
  int64_t target_stride;
  int64_t rows;
  int64_t columns;
  bool first;  // of those that fill the same rows of the target
  bool last;
  std::byte* carries;  // a line for each row of the target
};

bool Transposer::IsTransposable(int64_t bytes) { return bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8; }

Transposer::Transposer(int64_t element_bytes, const CastChain& casts, bool past_caches)
    : casts_(casts), source_bytes_(element_bytes), target_bytes_(element_bytes), past_caches_(past_caches) {
#if defined(__x86_64__)
  if (!HasAvx2()) past_caches_ = false;
#else
  past_caches_ = false;
#endif
  if (casts.size() < 2) return;
  target_bytes_ = BytesOf(casts.back());
  cast_first_ = target_bytes_ <= source_bytes_;  // the smaller elements are transposed
  cast_last_ = !cast_first_;
  if (casts.size() == 2) cast_ = FindCast(casts[0], casts[1]);
}

void Transposer::Cast(const std::byte* from, std::byte* to, int64_t count) const {
  if (cast_ != nullptr) return cast_(from, to, static_cast<size_t>(count));
  CastElements(casts_, from, to, static_cast<size_t>(count));
}

void Transposer::Copy(const Plane& plane) {
  const int64_t tile_rows = kRun / target_bytes_, tile_columns = kRun / source_bytes_;
  const int64_t bytes = std::min(source_bytes_, target_bytes_), group = 2 * (16 / bytes);
  const bool past_caches = past_caches_;
  if (plane.rows * target_bytes_ < kRun) past_caches_ = false;  // hardly a whole line
  // In areas of columns, so that the pages of the target are few enough for the translation buffers of the processor.
  for (int64_t begin = 0; begin < plane.columns; begin += kArea) {
    const int64_t end = std::min(begin + kArea, plane.columns);
    for (int64_t row = 0; row < plane.rows; row += tile_rows) {
      for (int64_t column = begin; column < end; column += tile_columns) {
        Tile tile;
        tile.source = plane.source + row * plane.source_stride + column * source_bytes_;
        tile.stride = plane.source_stride;
        tile.target = plane.target + column * plane.target_stride + row * target_bytes_;
        tile.target_stride = plane.target_stride;
        tile.rows = std::min(tile_rows, plane.rows - row);
        tile.columns = std::min(tile_columns, end - column);
        tile.first = row == 0;
        tile.last = row + tile.rows == plane.rows;
        tile.next = column + tile.columns < end
                        ? tile.source + kRun
                        : plane.source + (row + tile.rows) * plane.source_stride + begin * source_bytes_;
        tile.carries = carries_ + (column - begin) * kLine;
        for (int64_t r = 0; r < tile.rows; r += group) {
          Gather(tile, r, std::min(group, tile.rows - r));
          TransposeGroup(bytes, group_, kRun, tile_ + kLine + r * bytes, kSlot, tile.columns);
        }
        Write(tile);
      }
    }
  }
  past_caches_ = past_caches;
}

// A group of rows of the source, packed and perhaps cast.
void Transposer::Gather(const Tile& tile, int64_t row, int64_t rows) {
  const int64_t bytes = tile.columns * source_bytes_;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t ahead = row + r + kAhead - tile.rows;
    Prefetch(ahead < 0 ? tile.source + (row + r + kAhead) * tile.stride : tile.next + ahead * tile.stride, bytes);
    const std::byte* from = tile.source + (row + r) * tile.stride;
    std::byte* to = group_ + r * kRun;
    if (cast_first_) {
      Cast(from, to, tile.columns);
    } else if (bytes == kRun) {
      std::memcpy(to, from, kRun);
    } else {
      std::memcpy(to, from, static_cast<size_t>(bytes));
    }
  }
}

void Transposer::Write(const Tile& tile) {
  const int64_t bytes = tile.rows * target_bytes_;
  for (int64_t c = 0; c < tile.columns; ++c) {
    std::byte* row = tile_ + c * kSlot + kLine;
    if (cast_last_) {
      Cast(row, cast_row_ + kLine, tile.rows);
      row = cast_row_ + kLine;
    }
    std::byte* to = tile.target + c * tile.target_stride;
    if (past_caches_) {
      WriteRow(row, bytes, to, tile.carries + c * kLine, tile.first, tile.last);
    } else if (bytes == kRun) {
      std::memcpy(to, row, kRun);
    } else {
      std::memcpy(to, row, static_cast<size_t>(bytes));
    }
  }
}

// Whole lines past the caches; what lies before the first and behind the last of the target's row through them.
void Transposer::WriteRow(std::byte* row, int64_t bytes, std::byte* to, std::byte* carry, bool first, bool last) {
#if defined(__x86_64__)
  const auto skew = static_cast<int64_t>(reinterpret_cast<uintptr_t>(to) & (kLine - 1));
  int64_t begin = 0;
  if (skew != 0 && first) {
    begin = std::min(kLine - skew, bytes);
    std::memcpy(to, row, static_cast<size_t>(begin));
  } else if (skew != 0) {
    std::memcpy(row - kLine, carry, kLine);
    begin = -skew;
  }
  const int64_t lines = (bytes - begin) / kLine, end = begin + lines * kLine;
  StreamLines(row + begin, to + begin, lines);
  if (end == bytes) return;
  if (last) {
    std::memcpy(to + end, row + end, static_cast<size_t>(bytes - end));
  } else {
    std::memcpy(carry, row + bytes - kLine, kLine);
  }
#endif
}

void Transposer::Finish() {
#if defined(__x86_64__)
  if (past_caches_) _mm_sfence();
#endif
}

}  // namespace cairn
