// Half-open ranges of the row-major flattening of a box. ZeRO-1 and distributed optimizers split parameters so.
#ifndef CAIRN_COMMON_TENSOR_FLAT_RANGE_H_
#define CAIRN_COMMON_TENSOR_FLAT_RANGE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "common/tensor/box.h"

namespace cairn {

// The elements [begin, end) of a flattened box.
struct FlatRange {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
  bool empty() const { return begin >= end; }
  bool operator==(const FlatRange&) const = default;
};

// Returns the strides of a row-major array, in elements. ElementCount(shape) must exist.
Shape RowMajorStrides(std::span<const int64_t> shape);

// Returns the smallest box, within an array of `shape`, that holds every element of a non-empty `range` of it. An axis
// is narrowed only if the first and the last element have the same index in all earlier axes. All later axes keep their
// full size. The range is contiguous within the box.
Box MinimalBox(std::span<const int64_t> shape, FlatRange range);

// Appends disjoint boxes that together hold exactly `range` of an array of `shape`. The boxes are in order: their
// elements, one box after the other, are the range. It appends the smallest possible number of boxes, at most max(1, 2
// * ndim - 1), and none for an empty range.
void AppendBoxes(std::span<const int64_t> shape, FlatRange range, std::vector<Box>& boxes);

}  // namespace cairn

#endif  // CAIRN_COMMON_TENSOR_FLAT_RANGE_H_
