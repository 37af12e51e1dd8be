#include "common/tensor/strided_copy.h"

#include <algorithm>
#include <cstring>

namespace cairn {

int64_t StridedCopy::bytes() const {
  int64_t bytes = element_bytes;
  for (int64_t n : extent) bytes *= n;
  return bytes;
}

StridedCopy CopyOfRegion(const Box& region, const Box& source, const Box& target, int bytes_per_element) {
  StridedCopy copy;
  copy.element_bytes = bytes_per_element;
  int64_t source_stride = bytes_per_element;
  int64_t target_stride = bytes_per_element;
  // From the innermost dimension outwards; kept reversed until the end.
  for (size_t i = region.ndim(); i-- > 0;) {
    const int64_t n = region.shape[i];
    copy.source_offset += (region.offset[i] - source.offset[i]) * source_stride;
    copy.target_offset += (region.offset[i] - target.offset[i]) * target_stride;
    if (n != 1) {
      if (copy.extent.empty() && source_stride == copy.element_bytes && target_stride == copy.element_bytes) {
        copy.element_bytes *= n;
      } else if (!copy.extent.empty() && copy.source_stride.back() * copy.extent.back() == source_stride &&
                 copy.target_stride.back() * copy.extent.back() == target_stride) {
        copy.extent.back() *= n;
      } else {
        copy.extent.push_back(n);
        copy.source_stride.push_back(source_stride);
        copy.target_stride.push_back(target_stride);
      }
    }
    source_stride *= source.shape[i];
    target_stride *= target.shape[i];
  }
  std::reverse(copy.extent.begin(), copy.extent.end());
  std::reverse(copy.source_stride.begin(), copy.source_stride.end());
  std::reverse(copy.target_stride.begin(), copy.target_stride.end());
  return copy;
}

void Execute(const StridedCopy& copy, const std::byte* source, std::byte* target) {
  source += copy.source_offset;
  target += copy.target_offset;
  const size_t ndim = copy.extent.size();
  for (int64_t n : copy.extent) {
    if (n == 0) return;
  }
  Shape index(ndim, 0);
  while (true) {
    std::memcpy(target, source, static_cast<size_t>(copy.element_bytes));
    size_t d = ndim;
    while (d > 0) {
      --d;
      source += copy.source_stride[d];
      target += copy.target_stride[d];
      if (++index[d] < copy.extent[d]) break;
      source -= copy.source_stride[d] * copy.extent[d];
      target -= copy.target_stride[d] * copy.extent[d];
      index[d] = 0;
      if (d == 0) return;
    }
    if (ndim == 0) return;
  }
}

}  // namespace cairn
