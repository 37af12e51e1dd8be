#include "common/tensor/tiled_copy.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace cairn {
namespace {

using Dimension = TiledCopy::Dimension;

// Sides of tiles. A row should be a few cache lines long, and a tile of either kind has at most 32 KiB.
constexpr int64_t kTile = 64;
constexpr int64_t kNarrowTile = 128;  // of elements of one or two bytes
constexpr int64_t kArea = 512;
// Smaller targets may well be read soon.
constexpr int64_t kStreamedBytes = int64_t{4} << 20;
constexpr size_t kMaxElement = 8;  // larger ones are moved one by one

template <size_t kBytes>
void CopyRow(const std::byte* source, std::byte* target, const Dimension& d) {
  for (int64_t i = 0; i < d.extent; ++i) {
    std::memcpy(target + i * d.target_stride, source + i * d.source_stride, kBytes);
  }
}

// Blocks of whole vectors: `in` has kTile elements a row, `out` too. Answers the side of a block.
template <size_t kBytes>
constexpr int64_t kBlock = kBytes == 1 ? 16 : static_cast<int64_t>(16 / kBytes);

#if defined(__x86_64__)
inline __m128i Load(const std::byte* from) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)); }
inline void Store(std::byte* to, __m128i value) { _mm_storeu_si128(reinterpret_cast<__m128i*>(to), value); }

template <size_t kBytes>
__m128i InterleaveLow(__m128i a, __m128i b) {
  if constexpr (kBytes == 1) return _mm_unpacklo_epi8(a, b);
  if constexpr (kBytes == 2) return _mm_unpacklo_epi16(a, b);
  if constexpr (kBytes == 4) return _mm_unpacklo_epi32(a, b);
  return _mm_unpacklo_epi64(a, b);
}
template <size_t kBytes>
__m128i InterleaveHigh(__m128i a, __m128i b) {
  if constexpr (kBytes == 1) return _mm_unpackhi_epi8(a, b);
  if constexpr (kBytes == 2) return _mm_unpackhi_epi16(a, b);
  if constexpr (kBytes == 4) return _mm_unpackhi_epi32(a, b);
  return _mm_unpackhi_epi64(a, b);
}

// A square block by interleaving rows half a block apart, log2(side) times (Eklundh, "A fast computer method for matrix
// transposing", IEEE Transactions on Computers, 1972).
template <size_t kBytes, int64_t kSide>
inline void TransposeBlock(const std::byte* in, int64_t in_stride, std::byte* out) {
  constexpr int64_t n = kBlock<kBytes>;
  constexpr int64_t stride = kSide * static_cast<int64_t>(kBytes);
  // Unrolled, so that the rows stay in registers.
  __m128i a[n], b[n];
#pragma GCC unroll 16
  for (int64_t i = 0; i < n; ++i) a[i] = Load(in + i * in_stride);
#pragma GCC unroll 16
  for (int64_t pass = 1; pass < n; pass *= 2) {
#pragma GCC unroll 16
    for (int64_t i = 0; i < n / 2; ++i) {
      b[2 * i] = InterleaveLow<kBytes>(a[i], a[i + n / 2]);
      b[2 * i + 1] = InterleaveHigh<kBytes>(a[i], a[i + n / 2]);
    }
#pragma GCC unroll 16
    for (int64_t i = 0; i < n; ++i) a[i] = b[i];
  }
#pragma GCC unroll 16
  for (int64_t i = 0; i < n; ++i) Store(out + i * stride, a[i]);
}
#else
template <size_t kBytes, int64_t kSide>
inline void TransposeBlock(const std::byte* in, int64_t in_stride, std::byte* out) {
  constexpr int64_t n = kBlock<kBytes>;
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j)
      std::memcpy(out + (j * kSide + i) * kBytes, in + i * in_stride + j * kBytes, kBytes);
  }
}
#endif

// rows x columns of `in` become columns x rows of `out`, a tile of kSide x kSide. Whole blocks are read and written, so
// what lies outside rows x columns, up to the next multiple of a block, must be memory, if only of garbage.
template <size_t kBytes, int64_t kSide>
void TransposeTile(const std::byte* in, int64_t in_stride, std::byte* out, int64_t rows, int64_t columns) {
  constexpr int64_t n = kBlock<kBytes>;
  for (int64_t r = 0; r < rows; r += n) {
    for (int64_t c = 0; c < columns; c += n) {
      TransposeBlock<kBytes, kSide>(in + r * in_stride + c * static_cast<int64_t>(kBytes), in_stride,
                                    out + (c * kSide + r) * static_cast<int64_t>(kBytes));
    }
  }
}

void TransposeTile(int64_t bytes, int64_t side, const std::byte* in, int64_t in_stride, std::byte* out, int64_t rows,
                   int64_t columns) {
  const bool narrow = side == kNarrowTile;
  switch (bytes) {
    case 1:
      return narrow ? TransposeTile<1, kNarrowTile>(in, in_stride, out, rows, columns)
                    : TransposeTile<1, kTile>(in, in_stride, out, rows, columns);
    case 2:
      return narrow ? TransposeTile<2, kNarrowTile>(in, in_stride, out, rows, columns)
                    : TransposeTile<2, kTile>(in, in_stride, out, rows, columns);
    case 4:
      return TransposeTile<4, kTile>(in, in_stride, out, rows, columns);
    default:
      return TransposeTile<8, kTile>(in, in_stride, out, rows, columns);
  }
}

// Rows of a fixed length, so that no call is made for each.
template <size_t kRowBytes>
void MoveRows(const std::byte* from, int64_t from_stride, std::byte* to, int64_t to_stride, int64_t rows) {
  for (int64_t r = 0; r < rows; ++r) std::memcpy(to + r * to_stride, from + r * from_stride, kRowBytes);
}

#if defined(__x86_64__)
// The same past the caches: whole lines, which are not read first only to be overwritten.
template <size_t kRowBytes>
void StreamRows(const std::byte* from, int64_t from_stride, std::byte* to, int64_t to_stride, int64_t rows) {
  for (int64_t r = 0; r < rows; ++r) {
    const std::byte* row = from + r * from_stride;
    auto* line = reinterpret_cast<__m128i*>(to + r * to_stride);
    for (size_t i = 0; i < kRowBytes / 16; ++i) _mm_stream_si128(line + i, Load(row + 16 * i));
  }
}
#endif

// `streamed`: the target is large and whole lines are written.
void MoveRows(int64_t row_bytes, const std::byte* from, int64_t from_stride, std::byte* to, int64_t to_stride,
              int64_t rows, bool streamed) {
#if defined(__x86_64__)
  if (streamed && row_bytes == 512) return StreamRows<512>(from, from_stride, to, to_stride, rows);
  if (streamed && row_bytes == 256) return StreamRows<256>(from, from_stride, to, to_stride, rows);
  if (streamed && row_bytes == 128) return StreamRows<128>(from, from_stride, to, to_stride, rows);
  if (streamed && row_bytes == 64) return StreamRows<64>(from, from_stride, to, to_stride, rows);
#endif
  switch (row_bytes) {
    case 512:
      return MoveRows<512>(from, from_stride, to, to_stride, rows);
    case 256:
      return MoveRows<256>(from, from_stride, to, to_stride, rows);
    case 128:
      return MoveRows<128>(from, from_stride, to, to_stride, rows);
    case 64:
      return MoveRows<64>(from, from_stride, to, to_stride, rows);
    default:
      for (int64_t r = 0; r < rows; ++r) {
        std::memcpy(to + r * to_stride, from + r * from_stride, static_cast<size_t>(row_bytes));
      }
  }
}

bool IsTileable(int64_t bytes) { return bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8; }

// Runs one simplified copy.
class Walker {
 public:
  explicit Walker(const TiledCopy& copy) : copy_(copy), dimensions_(copy.dimensions) {
    source_bytes_ = copy.element_bytes;
    target_bytes_ = copy.target_element_bytes();
    if (dimensions_.empty()) return;
    inner_ = dimensions_.back();
    dimensions_.pop_back();
    const bool small = copy.is_cast() || IsTileable(source_bytes_);
    if (inner_.source_stride == source_bytes_ || inner_.target_stride != target_bytes_ || !small) return;
    for (size_t d = dimensions_.size(); d-- > 0;) {
      if (dimensions_[d].source_stride != source_bytes_) continue;
      across_ = dimensions_[d];
      dimensions_.erase(dimensions_.begin() + static_cast<std::ptrdiff_t>(d));
      tiled_ = true;
      if (std::max(source_bytes_, target_bytes_) <= 2) side_ = kNarrowTile;
      return;
    }
  }

  void Run() {
    if (copy_.dimensions.empty()) return Single();
    for (const Dimension& d : copy_.dimensions) {
      if (d.extent == 0) return;
    }
    Walk(copy_.source, copy_.target, 0);
  }

 private:
  void Single() {
    if (copy_.is_cast()) return CastElements(copy_.casts, copy_.source, copy_.target, 1);
    std::memcpy(copy_.target, copy_.source, static_cast<size_t>(source_bytes_));
  }

  void Walk(const std::byte* source, std::byte* target, size_t depth) {
    if (depth == dimensions_.size()) {
      if (tiled_) return Tiles(source, target);
      return copy_.is_cast() ? CastRow(source, target) : Row(source, target);
    }
    const Dimension& d = dimensions_[depth];
    for (int64_t i = 0; i < d.extent; ++i) {
      Walk(source + i * d.source_stride, target + i * d.target_stride, depth + 1);
    }
  }

  void Row(const std::byte* source, std::byte* target) const {
    switch (source_bytes_) {
      case 1:
        return CopyRow<1>(source, target, inner_);
      case 2:
        return CopyRow<2>(source, target, inner_);
      case 4:
        return CopyRow<4>(source, target, inner_);
      case 8:
        return CopyRow<8>(source, target, inner_);
      case 16:
        return CopyRow<16>(source, target, inner_);
      default:
        for (int64_t i = 0; i < inner_.extent; ++i) {
          std::memcpy(target + i * inner_.target_stride, source + i * inner_.source_stride,
                      static_cast<size_t>(source_bytes_));
        }
    }
  }

  void CastRow(const std::byte* source, std::byte* target) {
    const bool packed_source = inner_.source_stride == source_bytes_;
    const bool packed_target = inner_.target_stride == target_bytes_;
    if (packed_source && packed_target) {
      return CastElements(copy_.casts, source, target, static_cast<size_t>(inner_.extent));
    }
    constexpr int64_t kMost = kTile * kTile;
    for (int64_t at = 0; at < inner_.extent; at += kMost) {
      const int64_t n = std::min(kMost, inner_.extent - at);
      const std::byte* from = source + at * inner_.source_stride;
      std::byte* to = target + at * inner_.target_stride;
      if (!packed_source) {
        for (int64_t i = 0; i < n; ++i) {
          std::memcpy(in_ + i * source_bytes_, from + i * inner_.source_stride, static_cast<size_t>(source_bytes_));
        }
        from = in_;
      }
      CastElements(copy_.casts, from, packed_target ? to : out_, static_cast<size_t>(n));
      if (packed_target) continue;
      for (int64_t i = 0; i < n; ++i) {
        std::memcpy(to + i * inner_.target_stride, out_ + i * target_bytes_, static_cast<size_t>(target_bytes_));
      }
    }
  }

  // `across_` is packed in the source, `inner_` in the target. Tiles are taken area by area, whose pages are few enough
  // for the translation buffers of the processor.
  void Tiles(const std::byte* source, std::byte* target) {
    const auto aligned = [&](const std::byte* at, int64_t stride) {
      return ((reinterpret_cast<uintptr_t>(at) | static_cast<uintptr_t>(stride)) & 63) == 0;
    };
    streamed_ =
        aligned(target, across_.target_stride) && across_.extent * inner_.extent * target_bytes_ >= kStreamedBytes;
    for (int64_t s = 0; s < across_.extent; s += kArea) {
      for (int64_t t = 0; t < inner_.extent; t += kArea) {
        const int64_t s_end = std::min(s + kArea, across_.extent), t_end = std::min(t + kArea, inner_.extent);
        for (int64_t i = s; i < s_end; i += side_) {
          for (int64_t j = t; j < t_end; j += side_) {
            Tile(source + i * across_.source_stride + j * inner_.source_stride,
                 target + i * across_.target_stride + j * inner_.target_stride, std::min(side_, s_end - i),
                 std::min(side_, t_end - j));
          }
        }
      }
    }
#if defined(__x86_64__)
    if (streamed_) _mm_sfence();
#endif
  }

  // Rows go along `inner_`, columns along `across_`.
  void Tile(const std::byte* from, std::byte* to, int64_t columns, int64_t rows) {
    const bool whole = rows == side_ && columns == side_;
    const bool cast_first = copy_.is_cast() && target_bytes_ < source_bytes_;  // the smaller elements are transposed
    const bool cast_last = copy_.is_cast() && !cast_first;
    const int64_t bytes = cast_first ? target_bytes_ : source_bytes_;
    const auto elements = static_cast<size_t>(side_ * side_);
    const std::byte* tile = from;
    int64_t stride = inner_.source_stride;
    std::byte *scratch = in_, *other = out_;
    if (cast_first || !whole) {
      MoveRows(columns * source_bytes_, from, stride, scratch, side_ * source_bytes_, rows, false);
      tile = scratch;
      stride = side_ * source_bytes_;
      std::swap(scratch, other);
    }
    if (cast_first) {
      CastElements(copy_.casts, tile, scratch, elements);
      tile = scratch;
      stride = side_ * target_bytes_;
      std::swap(scratch, other);
    }
    TransposeTile(bytes, side_, tile, stride, scratch, rows, columns);
    if (cast_last) {
      CastElements(copy_.casts, scratch, other, elements);
      scratch = other;
    }
    if (!whole) {
      MoveRows(rows * target_bytes_, scratch, side_ * target_bytes_, to, across_.target_stride, columns, streamed_);
      return;
    }
    // While these rows are written, those of the next tile are fetched.
    const std::byte* next = from + side_ * inner_.source_stride;
    constexpr int64_t kRows = 8;
    for (int64_t r = 0; r < side_; r += kRows) {
      for (int64_t i = r; i < r + kRows; ++i) {
        for (int64_t k = 0; k < side_ * source_bytes_; k += 64) {
          __builtin_prefetch(next + i * inner_.source_stride + k, 0, 3);
        }
      }
      MoveRows(side_ * target_bytes_, scratch + r * side_ * target_bytes_, side_ * target_bytes_,
               to + r * across_.target_stride, across_.target_stride, kRows, streamed_);
    }
  }

  const TiledCopy& copy_;
  std::vector<Dimension> dimensions_;  // outer ones
  Dimension inner_;
  Dimension across_;
  bool tiled_ = false;
  bool streamed_ = false;
  int64_t side_ = kTile;
  int64_t source_bytes_ = 0;
  int64_t target_bytes_ = 0;
  // Of a partial tile whole blocks are transposed all the same; what was never filled is never written to a target.
  alignas(64) std::byte in_[kTile * kTile * kMaxElement];
  alignas(64) std::byte out_[kTile * kTile * kMaxElement];
};

void CopyWalk(const TiledCopy& copy, const std::byte* source, std::byte* target, size_t depth) {
  if (depth == copy.dimensions.size()) {
    std::memcpy(target, source, static_cast<size_t>(copy.element_bytes));
    return;
  }
  const Dimension& d = copy.dimensions[depth];
  for (int64_t i = 0; i < d.extent; ++i) {
    CopyWalk(copy, source + i * d.source_stride, target + i * d.target_stride, depth + 1);
  }
}

}  // namespace

int64_t TiledCopy::elements() const {
  int64_t count = 1;
  for (const Dimension& d : dimensions) count *= d.extent;
  return count;
}

void TiledCopy::Simplify() {
  std::erase_if(dimensions, [](const Dimension& d) { return d.extent == 1; });
  // The target is walked as it lies in memory, so that its cache lines are filled once.
  std::stable_sort(dimensions.begin(), dimensions.end(), [](const Dimension& a, const Dimension& b) {
    return std::abs(a.target_stride) > std::abs(b.target_stride);
  });
  std::vector<Dimension> merged;  // innermost first
  for (auto d = dimensions.rbegin(); d != dimensions.rend(); ++d) {
    if (!is_cast() && merged.empty() && d->source_stride == element_bytes && d->target_stride == element_bytes) {
      element_bytes *= d->extent;
    } else if (!merged.empty() && d->source_stride == merged.back().source_stride * merged.back().extent &&
               d->target_stride == merged.back().target_stride * merged.back().extent) {
      merged.back().extent *= d->extent;
    } else {
      merged.push_back(*d);
    }
  }
  std::reverse(merged.begin(), merged.end());
  dimensions = std::move(merged);
}

void Execute(const TiledCopy& copy) {
  // Long runs need none of the walker's blocks.
  if (!copy.is_cast() && copy.element_bytes > 16) return CopyWalk(copy, copy.source, copy.target, 0);
  Walker(copy).Run();
}

}  // namespace cairn
