// Shapes and boxes: half-open N-dimensional ranges of a tensor's elements, row-major.
#ifndef CAIRN_COMMON_TENSOR_BOX_H_
#define CAIRN_COMMON_TENSOR_BOX_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "absl/container/inlined_vector.h"

namespace cairn {

// Sizes per dimension; empty for a 0-d tensor, which has one element.
using Shape = absl::InlinedVector<int64_t, 4>;

// The product of `dims`; nothing if one is negative or the product is 2^63 or more. A zero makes it 0 whatever the
// others are.
std::optional<int64_t> ElementCount(std::span<const int64_t> dims);

struct Box {
  Shape offset;
  Shape shape;

  size_t ndim() const { return offset.size(); }
  bool empty() const;
  // Elements; the box must be inside a tensor whose count did not overflow.
  int64_t size() const;
  bool operator==(const Box&) const = default;
};

// The whole tensor.
Box WholeBox(std::span<const int64_t> global_shape);

// True if `box` has `global_shape`'s dimensions, nothing negative, and ends inside it. Overflow-safe.
bool Contains(std::span<const int64_t> global_shape, const Box& box);
bool Contains(const Box& outer, const Box& inner);

// The common part; nothing if it is empty. Both must have the same number of dimensions. Two 0-d boxes meet.
std::optional<Box> Intersect(const Box& a, const Box& b);

// "[0, 4):[8, 16)" per dimension; "scalar" for 0-d.
std::string ToString(const Box& box);
// "(4, 8)".
std::string ShapeToString(std::span<const int64_t> dims);

}  // namespace cairn

#endif  // CAIRN_COMMON_TENSOR_BOX_H_
