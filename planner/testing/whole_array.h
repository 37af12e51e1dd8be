// Whole small tensors, on which an oracle executes what the planner does to shards.
#ifndef CAIRN_PLANNER_TESTING_WHOLE_ARRAY_H_
#define CAIRN_PLANNER_TESTING_WHOLE_ARRAY_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/tensor/box.h"
#include "common/tensor/dtype.h"

namespace cairn::testing {

// A whole tensor, row-major. Its values are doubles that the dtype can hold, which integers below 2^53 are too.
struct Array {
  DType dtype;
  Shape shape;
  std::vector<double> values;

  int64_t size() const { return static_cast<int64_t>(values.size()); }
};

Shape StridesOf(const Shape& shape);

// Calls `each(index)` for all indices of a shape, row-major.
template <typename Each>
void ForEachIndex(const Shape& shape, Each&& each) {
  Shape index(shape.size(), 0);
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return;
  while (true) {
    each(index);
    size_t d = shape.size();
    while (d > 0 && ++index[d - 1] == shape[d - 1]) index[--d] = 0;
    if (d == 0) return;
  }
}

double At(const Array& array, const Shape& index);

// The array whose axis d is the axis axes[d] of `in`.
Array Permuted(const Array& in, const std::vector<int64_t>& axes);

// The slices [begin, begin + size) of an axis.
Array Part(const Array& in, size_t axis, int64_t begin, int64_t size);

// The parts one behind the other along an axis; there must be one at least.
Array Joined(const std::vector<const Array*>& parts, size_t axis);

// Returns the array with each value rounded to the dtype.
Array Cast(Array in, DType dtype);

// The bytes that a rank with the whole tensor holds.
std::vector<std::byte> Encoded(const Array& array);

}  // namespace cairn::testing

#endif  // CAIRN_PLANNER_TESTING_WHOLE_ARRAY_H_
