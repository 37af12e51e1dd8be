#include "common/tensor/box.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace cairn {

std::optional<int64_t> ElementCount(std::span<const int64_t> dims) {
  int64_t count = 1;
  bool zero = false;
  bool overflow = false;
  for (int64_t dim : dims) {
    if (dim < 0) return std::nullopt;
    if (dim == 0) zero = true;
    if (!overflow && __builtin_mul_overflow(count, dim == 0 ? 1 : dim, &count)) overflow = true;
  }
  if (zero) return 0;
  if (overflow) return std::nullopt;
  return count;
}

bool Box::empty() const { return std::find(shape.begin(), shape.end(), 0) != shape.end(); }

int64_t Box::size() const {
  int64_t count = 1;
  for (int64_t dim : shape) count *= dim;
  return count;
}

Box WholeBox(std::span<const int64_t> global_shape) {
  return {Shape(global_shape.size(), 0), Shape(global_shape.begin(), global_shape.end())};
}

bool Contains(std::span<const int64_t> global_shape, const Box& box) {
  if (box.offset.size() != global_shape.size() || box.shape.size() != global_shape.size()) return false;
  for (size_t i = 0; i < global_shape.size(); ++i) {
    if (box.offset[i] < 0 || box.shape[i] < 0 || box.shape[i] > global_shape[i] ||
        box.offset[i] > global_shape[i] - box.shape[i]) {
      return false;
    }
  }
  return true;
}

bool Contains(const Box& outer, const Box& inner) {
  for (size_t i = 0; i < outer.ndim(); ++i) {
    if (inner.offset[i] < outer.offset[i] || inner.offset[i] + inner.shape[i] > outer.offset[i] + outer.shape[i]) {
      return false;
    }
  }
  return true;
}

std::optional<Box> Intersect(const Box& a, const Box& b) {
  Box common;
  common.offset.resize(a.ndim());
  common.shape.resize(a.ndim());
  for (size_t i = 0; i < a.ndim(); ++i) {
    const int64_t begin = std::max(a.offset[i], b.offset[i]);
    const int64_t end = std::min(a.offset[i] + a.shape[i], b.offset[i] + b.shape[i]);
    if (begin >= end) return std::nullopt;
    common.offset[i] = begin;
    common.shape[i] = end - begin;
  }
  return common;
}

std::string ToString(const Box& box) {
  if (box.ndim() == 0) return "scalar";
  std::string text;
  for (size_t i = 0; i < box.ndim(); ++i) {
    absl::StrAppend(&text, i == 0 ? "[" : ":[", box.offset[i], ", ", box.offset[i] + box.shape[i], ")");
  }
  return text;
}

std::string ShapeToString(std::span<const int64_t> dims) {
  return absl::StrCat("(", absl::StrJoin(dims.begin(), dims.end(), ", "), dims.size() == 1 ? ",)" : ")");
}

}  // namespace cairn
