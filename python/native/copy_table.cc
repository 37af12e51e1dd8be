#include "python/native/copy_table.h"

namespace cairn {
namespace {

using Dimension = TiledCopy::Dimension;

constexpr int64_t kMaxDimensions = 64;  // as many as a layout may have
constexpr int64_t kMaxCasts = 32;

// Returns true if every element of the walk lies within [0, bytes). No arithmetic can overflow unnoticed.
bool Within(int64_t offset, int64_t element_bytes, const std::vector<Dimension>& dimensions,
            int64_t Dimension::* stride, int64_t bytes) {
  int64_t low = offset;
  int64_t high = offset;
  for (const Dimension& d : dimensions) {
    if (d.extent == 0) return true;
    int64_t reach;
    if (__builtin_mul_overflow(d.extent - 1, d.*stride, &reach)) return false;
    if (__builtin_add_overflow(reach < 0 ? low : high, reach, reach < 0 ? &low : &high)) return false;
  }
  return low >= 0 && !__builtin_add_overflow(high, element_bytes, &high) && high <= bytes;
}

}  // namespace

std::optional<Walk> ResolveWalk(const CairnCopy& copy, const int64_t* numbers, bool with_target) {
  const int64_t n = copy.dimensions;
  if (n < 0 || n > kMaxDimensions || copy.element_bytes < 0) return std::nullopt;
  Walk walk{.source = static_cast<const char*>(copy.source) + copy.source_offset,
            .target = static_cast<char*>(copy.target) + copy.target_offset,
            .element_bytes = copy.element_bytes,
            .dimensions = {},
            .casts = {}};
  const int64_t* at = numbers + copy.first_dimension;
  for (int64_t i = 0; i < n; ++i) {
    if (at[i] < 0) return std::nullopt;
    walk.dimensions.push_back({at[i], at[n + i], at[2 * n + i]});
  }
  if (copy.casts < 0 || copy.casts == 1 || copy.casts > kMaxCasts) return std::nullopt;
  for (int64_t i = 0; i < copy.casts; ++i) {
    const int64_t number = at[3 * n + i];
    const auto dtype = number < 0 || number > 255 ? std::nullopt : DTypeFromNumber(static_cast<int>(number));
    if (!dtype || !IsCastable(*dtype)) return std::nullopt;
    walk.casts.push_back(*dtype);
  }
  if (!walk.casts.empty() && walk.element_bytes != BytesOf(walk.casts.front())) return std::nullopt;
  if (copy.source_bytes >= 0 &&
      !Within(copy.source_offset, copy.element_bytes, walk.dimensions, &Dimension::source_stride, copy.source_bytes)) {
    return std::nullopt;
  }
  if (with_target && copy.target_bytes >= 0 &&
      !Within(copy.target_offset, walk.target_element_bytes(), walk.dimensions, &Dimension::target_stride,
              copy.target_bytes)) {
    return std::nullopt;
  }
  return walk;
}

}  // namespace cairn
