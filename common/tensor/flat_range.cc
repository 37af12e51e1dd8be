#include "common/tensor/flat_range.h"

namespace cairn {
namespace {

// Appends the boxes of [begin, end) of the sub-array that `prefix` selects by its offsets of the axes before `axis`.
void AppendFrom(std::span<const int64_t> shape, const Shape& strides, size_t axis, int64_t begin, int64_t end,
                Shape& prefix, std::vector<Box>& boxes) {
  if (begin >= end) return;
  const auto emit = [&](int64_t first, int64_t last) {
    Box box{Shape(shape.size(), 0), Shape(shape.begin(), shape.end())};
    for (size_t i = 0; i < axis; ++i) {
      box.offset[i] = prefix[i];
      box.shape[i] = 1;
    }
    if (axis < shape.size()) {
      box.offset[axis] = first;
      box.shape[axis] = last - first;
    }
    boxes.push_back(std::move(box));
  };
  if (axis == shape.size()) return emit(0, 0);
  const int64_t stride = strides[axis];
  int64_t first = begin / stride;
  const int64_t last = end / stride;
  const int64_t head = begin % stride;
  const int64_t tail = end % stride;
  if (first == last) {  // the range lies within one row
    prefix[axis] = first;
    return AppendFrom(shape, strides, axis + 1, head, tail, prefix, boxes);
  }
  if (head != 0) {
    prefix[axis] = first++;
    AppendFrom(shape, strides, axis + 1, head, stride, prefix, boxes);
  }
  if (first < last) emit(first, last);
  if (tail != 0) {
    prefix[axis] = last;
    AppendFrom(shape, strides, axis + 1, 0, tail, prefix, boxes);
  }
}

}  // namespace

Shape RowMajorStrides(std::span<const int64_t> shape) {
  Shape strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return strides;
}

Box MinimalBox(std::span<const int64_t> shape, FlatRange range) {
  Box box = WholeBox(shape);
  const Shape strides = RowMajorStrides(shape);
  int64_t first = range.begin;
  int64_t last = range.end - 1;
  for (size_t i = 0; i < shape.size(); ++i) {
    const int64_t a = first / strides[i];
    const int64_t b = last / strides[i];
    box.offset[i] = a;
    box.shape[i] = b - a + 1;
    if (a != b) break;
    first %= strides[i];
    last %= strides[i];
  }
  return box;
}

void AppendBoxes(std::span<const int64_t> shape, FlatRange range, std::vector<Box>& boxes) {
  if (range.empty()) return;
  Shape prefix(shape.size(), 0);
  AppendFrom(shape, RowMajorStrides(shape), 0, range.begin, range.end, prefix, boxes);
}

}  // namespace cairn
