#include "planner/load/strided_copy.h"

#include <algorithm>
#include <cstring>

namespace cairn {

int64_t StridedCopy::bytes() const {
  int64_t bytes = element_bytes;
  for (int64_t n : extent) bytes *= n;
  return bytes;
}

void StridedCopy::AddOuter(int64_t size, int64_t source_step, int64_t target_step, bool whole_elements) {
  if (size == 1) return;
  if (!whole_elements && extent.empty() && source_step == element_bytes && target_step == element_bytes) {
    element_bytes *= size;
  } else if (!extent.empty() && source_stride.back() * extent.back() == source_step &&
             target_stride.back() * extent.back() == target_step) {
    extent.back() *= size;
  } else {
    extent.push_back(size);
    source_stride.push_back(source_step);
    target_stride.push_back(target_step);
  }
}

void StridedCopy::Finish() {
  std::reverse(extent.begin(), extent.end());
  std::reverse(source_stride.begin(), source_stride.end());
  std::reverse(target_stride.begin(), target_stride.end());
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
