// Describes shapes and boxes, which are half-open N-dimensional ranges of a tensor's elements, in row-major order.
#ifndef CAIRN_COMMON_TENSOR_BOX_H_
#define CAIRN_COMMON_TENSOR_BOX_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "absl/container/inlined_vector.h"

namespace cairn {

// The size of each dimension; empty for a 0-d tensor, which has one element.
using Shape = absl::InlinedVector<int64_t, 4>;

// Returns the product of `dims`; nothing if a dimension is negative or the product is 2^63 or more. If a dimension is
// zero, the product is 0 however large the others are.
std::optional<int64_t> ElementCount(std::span<const int64_t> dims);

struct Box {
  Shape offset;
  Shape shape;

  size_t ndim() const { return offset.size(); }
  bool empty() const;
  // Returns the number of elements. The box must lie inside a tensor whose ElementCount exists.
  int64_t size() const;
  bool operator==(const Box&) const = default;
};

Box WholeBox(std::span<const int64_t> global_shape);

// Returns true if `box` lies inside a tensor of `global_shape`: it has as many dimensions, no negative number, and does
// not end beyond the tensor. Any numbers may be given; none overflows.
bool Contains(std::span<const int64_t> global_shape, const Box& box);
bool Contains(const Box& outer, const Box& inner);

// Returns the common part; nothing if it is empty. Both must have the same number of dimensions. Two 0-d boxes meet.
std::optional<Box> Intersect(const Box& a, const Box& b);

// Returns one range per dimension, "[0, 4):[8, 16)"; "scalar" for 0-d.
std::string ToString(const Box& box);
// Returns "(4, 8)".
std::string ShapeToString(std::span<const int64_t> dims);

}  // namespace cairn

#endif  // CAIRN_COMMON_TENSOR_BOX_H_
