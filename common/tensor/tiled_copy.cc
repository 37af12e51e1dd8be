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

constexpr int64_t kTile = 64;
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
template <size_t kBytes>
inline void TransposeBlock(const std::byte* in, std::byte* out) {
  constexpr int64_t n = kBlock<kBytes>;
  constexpr int64_t stride = kTile * static_cast<int64_t>(kBytes);
  // Unrolled, so that the rows stay in registers.
  __m128i a[n], b[n];
#pragma GCC unroll 16
  for (int64_t i = 0; i < n; ++i) a[i] = Load(in + i * stride);
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
template <size_t kBytes>
inline void TransposeBlock(const std::byte* in, std::byte* out) {
  constexpr int64_t n = kBlock<kBytes>;
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j) std::memcpy(out + (j * kTile + i) * kBytes, in + (i * kTile + j) * kBytes, kBytes);
  }
}
#endif

// rows x columns of `in` become columns x rows of `out`; both are tiles of kTile x kTile. Whole blocks, so elements
// outside rows x columns may be garbage in both.
template <size_t kBytes>
void TransposeTile(const std::byte* in, std::byte* out, int64_t rows, int64_t columns) {
  constexpr int64_t n = kBlock<kBytes>;
  for (int64_t c = 0; c < columns; c += n) {
    for (int64_t r = 0; r < rows; r += n) {
      TransposeBlock<kBytes>(in + (r * kTile + c) * static_cast<int64_t>(kBytes),
                             out + (c * kTile + r) * static_cast<int64_t>(kBytes));
    }
  }
}

void TransposeTile(int64_t bytes, const std::byte* in, std::byte* out, int64_t rows, int64_t columns) {
  switch (bytes) {
    case 1:
      return TransposeTile<1>(in, out, rows, columns);
    case 2:
      return TransposeTile<2>(in, out, rows, columns);
    case 4:
      return TransposeTile<4>(in, out, rows, columns);
    default:
      return TransposeTile<8>(in, out, rows, columns);
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

  // `across_` is packed in the source, `inner_` in the target.
  void Tiles(const std::byte* source, std::byte* target) {
    // The smaller elements are transposed.
    const bool cast_first = copy_.is_cast() && target_bytes_ < source_bytes_;
    const int64_t bytes = cast_first ? target_bytes_ : source_bytes_;
    for (int64_t s = 0; s < across_.extent; s += kTile) {
      const int64_t columns = std::min(kTile, across_.extent - s);
      for (int64_t t = 0; t < inner_.extent; t += kTile) {
        const int64_t rows = std::min(kTile, inner_.extent - t);
        const std::byte* from = source + s * across_.source_stride + t * inner_.source_stride;
        for (int64_t r = 0; r < rows; ++r) {
          std::byte* row = in_ + r * kTile * bytes;
          if (cast_first) {
            CastElements(copy_.casts, from + r * inner_.source_stride, row, static_cast<size_t>(columns));
          } else {
            std::memcpy(row, from + r * inner_.source_stride, static_cast<size_t>(columns * bytes));
          }
        }
        TransposeTile(bytes, in_, out_, rows, columns);
        std::byte* to = target + s * across_.target_stride + t * inner_.target_stride;
        for (int64_t c = 0; c < columns; ++c) {
          const std::byte* row = out_ + c * kTile * bytes;
          if (copy_.is_cast() && !cast_first) {
            CastElements(copy_.casts, row, to + c * across_.target_stride, static_cast<size_t>(rows));
          } else {
            std::memcpy(to + c * across_.target_stride, row, static_cast<size_t>(rows * bytes));
          }
        }
      }
    }
  }

  const TiledCopy& copy_;
  std::vector<Dimension> dimensions_;  // outer ones
  Dimension inner_;
  Dimension across_;
  bool tiled_ = false;
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
