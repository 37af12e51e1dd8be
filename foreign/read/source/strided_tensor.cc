#include "foreign/read/source/strided_tensor.h"

#include <algorithm>

namespace cairn {

std::optional<std::vector<StridedTensor::Piece>> StridedTensor::Pieces(size_t most, bool may_share) const {
  const size_t ndim = shape.size();
  std::vector<Piece> pieces;
  for (const int64_t size : shape) {
    if (size == 0) return pieces;
  }
  // Axes are added to a piece from the innermost on, as long as the stride of the next axis is exactly the length of
  // the piece.
  Shape inner(ndim, 1);
  int64_t run = 1;
  for (size_t axis = ndim; axis-- > 0;) {
    if (shape[axis] == 1 || strides[axis] != run) continue;
    inner[axis] = shape[axis];
    run *= shape[axis];
  }
  // No element occurs twice if, from the smallest stride on, each stride is longer than all elements of the axes before
  // it.
  std::vector<size_t> by_stride;
  for (size_t axis = 0; axis < ndim; ++axis) {
    if (shape[axis] > 1) by_stride.push_back(axis);
  }
  std::sort(by_stride.begin(), by_stride.end(), [&](size_t a, size_t b) { return strides[a] < strides[b]; });
  int64_t reach = 1;
  size_t count = 1;
  for (const size_t axis : by_stride) {
    if (strides[axis] < reach && !may_share) return std::nullopt;
    reach = strides[axis] * (shape[axis] - 1) + reach;
    if (inner[axis] != 1) continue;
    if (count > most / static_cast<size_t>(shape[axis])) return std::nullopt;
    count *= static_cast<size_t>(shape[axis]);
  }
  Shape at(ndim, 0);
  for (size_t i = 0; i < count; ++i) {
    int64_t element = 0;
    for (size_t axis = 0; axis < ndim; ++axis) element += at[axis] * strides[axis];
    pieces.push_back({{at, inner}, offset + static_cast<uint64_t>(element) * static_cast<uint64_t>(BytesOf(dtype))});
    for (size_t axis = ndim; axis-- > 0;) {
      if (inner[axis] != 1 || shape[axis] == 1) continue;
      if (++at[axis] < shape[axis]) break;
      at[axis] = 0;
    }
  }
  return pieces;
}

}  // namespace cairn
