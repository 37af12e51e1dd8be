#include "common/tensor/tiled_copy.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "common/tensor/transposer.h"

namespace cairn {
namespace {

using Dimension = TiledCopy::Dimension;

// Smaller targets may be read soon, so they are written through the caches.
constexpr int64_t kLargeBytes = int64_t{4} << 20;
constexpr int64_t kCastAtOnce = 1024;
constexpr size_t kMostBytes = 8;  // of an element that is cast

template <size_t kBytes>
void CopyRow(const std::byte* source, std::byte* target, const Dimension& d) {
  for (int64_t i = 0; i < d.extent; ++i) {
    std::memcpy(target + i * d.target_stride, source + i * d.source_stride, kBytes);
  }
}

// Executes one simplified copy.
class Walker {
 public:
  explicit Walker(const TiledCopy& copy) : copy_(copy), dimensions_(copy.dimensions) {
    source_bytes_ = copy.element_bytes;
    target_bytes_ = copy.target_element_bytes();
    if (dimensions_.empty()) return;
    inner_ = dimensions_.back();
    dimensions_.pop_back();
    const bool small = copy.is_cast() || Transposer::IsTransposable(source_bytes_);
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
    const std::byte* source = copy_.source;
    std::byte* target = copy_.target;
    if (tiled_) {
      Transposer transposer(source_bytes_, copy_.casts, copy_.large);
      Walk(source, target, 0, [&](const std::byte* from, std::byte* to) { Transpose(from, to, transposer); });
      transposer.Finish();
    } else if (copy_.is_cast()) {
      Walk(source, target, 0, [&](const std::byte* from, std::byte* to) { CastRow(from, to); });
    } else {
      Walk(source, target, 0, [&](const std::byte* from, std::byte* to) { Row(from, to); });
    }
  }

 private:
  void Single() {
    if (copy_.is_cast()) return CastElements(copy_.casts, copy_.source, copy_.target, 1);
    std::memcpy(copy_.target, copy_.source, static_cast<size_t>(source_bytes_));
  }

  template <typename Visit>
  void Walk(const std::byte* source, std::byte* target, size_t depth, const Visit& visit) const {
    if (depth == dimensions_.size()) return visit(source, target);
    const Dimension& d = dimensions_[depth];
    for (int64_t i = 0; i < d.extent; ++i) {
      Walk(source + i * d.source_stride, target + i * d.target_stride, depth + 1, visit);
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

  void CastRow(const std::byte* source, std::byte* target) const {
    const bool packed_source = inner_.source_stride == source_bytes_;
    const bool packed_target = inner_.target_stride == target_bytes_;
    if (packed_source && packed_target) {
      return CastElements(copy_.casts, source, target, static_cast<size_t>(inner_.extent));
    }
    std::byte in[kCastAtOnce * kMostBytes], out[kCastAtOnce * kMostBytes];
    for (int64_t at = 0; at < inner_.extent; at += kCastAtOnce) {
      const int64_t n = std::min(kCastAtOnce, inner_.extent - at);
      const std::byte* from = source + at * inner_.source_stride;
      std::byte* to = target + at * inner_.target_stride;
      if (!packed_source) {
        for (int64_t i = 0; i < n; ++i) {
          std::memcpy(in + i * source_bytes_, from + i * inner_.source_stride, static_cast<size_t>(source_bytes_));
        }
        from = in;
      }
      CastElements(copy_.casts, from, packed_target ? to : out, static_cast<size_t>(n));
      if (packed_target) continue;
      for (int64_t i = 0; i < n; ++i) {
        std::memcpy(to + i * inner_.target_stride, out + i * target_bytes_, static_cast<size_t>(target_bytes_));
      }
    }
  }

  // `across_` is packed in the source, `inner_` in the target.
  void Transpose(const std::byte* source, std::byte* target, Transposer& transposer) const {
    transposer.Copy({.source = source,
                     .target = target,
                     .rows = inner_.extent,
                     .columns = across_.extent,
                     .source_stride = inner_.source_stride,
                     .target_stride = across_.target_stride});
  }

  const TiledCopy& copy_;
  std::vector<Dimension> dimensions_;  // outer ones
  Dimension inner_;
  Dimension across_;
  bool tiled_ = false;
  int64_t source_bytes_ = 0;
  int64_t target_bytes_ = 0;
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
  large = elements() * target_element_bytes() >= kLargeBytes;
  std::erase_if(dimensions, [](const Dimension& d) { return d.extent == 1; });
  // Dimensions are ordered by the target's memory, so that each of its cache lines is filled once.
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
  // Long runs are copied directly; the walker's blocks would not help.
  if (!copy.is_cast() && copy.element_bytes > 16) return CopyWalk(copy, copy.source, copy.target, 0);
  Walker(copy).Run();
}

}  // namespace cairn
