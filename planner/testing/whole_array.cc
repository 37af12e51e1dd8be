#include "planner/testing/whole_array.h"

#include <cstring>

#include "common/tensor/cast.h"
#include "common/tensor/testing/float_codec.h"

namespace cairn::testing {

Shape StridesOf(const Shape& shape) {
  Shape strides(shape.size(), 1);
  for (size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[d];
  return strides;
}

double At(const Array& array, const Shape& index) {
  const Shape strides = StridesOf(array.shape);
  int64_t at = 0;
  for (size_t d = 0; d < index.size(); ++d) at += index[d] * strides[d];
  return array.values[static_cast<size_t>(at)];
}

Array Permuted(const Array& in, const std::vector<int64_t>& axes) {
  Array out{in.dtype, {}, {}};
  for (int64_t axis : axes) out.shape.push_back(in.shape[static_cast<size_t>(axis)]);
  ForEachIndex(out.shape, [&](const Shape& index) {
    Shape from(index.size());
    for (size_t d = 0; d < index.size(); ++d) from[static_cast<size_t>(axes[d])] = index[d];
    out.values.push_back(At(in, from));
  });
  return out;
}

Array Part(const Array& in, size_t axis, int64_t begin, int64_t size) {
  Array out{in.dtype, in.shape, {}};
  out.shape[axis] = size;
  ForEachIndex(out.shape, [&](Shape index) {
    index[axis] += begin;
    out.values.push_back(At(in, index));
  });
  return out;
}

Array Joined(const std::vector<const Array*>& parts, size_t axis) {
  Array out{parts[0]->dtype, parts[0]->shape, {}};
  out.shape[axis] = 0;
  for (const Array* part : parts) out.shape[axis] += part->shape[axis];
  ForEachIndex(out.shape, [&](Shape index) {
    for (const Array* part : parts) {
      if (index[axis] < part->shape[axis]) return out.values.push_back(At(*part, index));
      index[axis] -= part->shape[axis];
    }
  });
  return out;
}

Array Cast(Array in, DType dtype) {
  in.dtype = dtype;
  for (double& value : in.values) value = RoundTo(value, dtype);
  return in;
}

std::vector<std::byte> Encoded(const Array& array) {
  const auto width = static_cast<size_t>(BytesOf(array.dtype));
  std::vector<std::byte> bytes(array.values.size() * width);
  for (size_t i = 0; i < array.values.size(); ++i) {
    if (IsCastable(array.dtype)) {
      Encode(array.values[i], array.dtype, bytes.data() + i * width);
    } else {
      const auto number = static_cast<int64_t>(array.values[i]);
      std::memcpy(bytes.data() + i * width, &number, width);
    }
  }
  return bytes;
}

}  // namespace cairn::testing
