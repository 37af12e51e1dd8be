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

// Returns the product of `dims`; nothing if one is negative or the product is 2^63 or more. If one is zero, the product
// is 0 however large the others are.
std::optional<int64_t> ElementCount(std::span<const int64_t> dims);

struct Box {
  Shape offset;
  Shape shape;

  size_t ndim() const { return offset.size(); }
  bool empty() const;
  // Returns the number of elements. The box must be inside a tensor whose own number did not overflow.
  int64_t size() const;
  bool operator==(const Box&) const = default;
};

// Returns the box of the whole tensor.
Box WholeBox(std::span<const int64_t> global_shape);

// Returns true if `box` has as many dimensions as `global_shape`, has no negative number, and ends inside. Nothing can
// overflow.
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
