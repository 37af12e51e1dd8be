#include "coordinator/planner/overlap.h"

#include <algorithm>

namespace cairn {
namespace {

// The boxes of the tensor that a piece consists of.
std::vector<Box> BoxesOf(const Box& box, FlatRange range) {
  std::vector<Box> boxes;
  AppendBoxes(box.shape, range, boxes);
  for (Box& part : boxes) {
    for (size_t d = 0; d < part.ndim(); ++d) part.offset[d] += box.offset[d];
  }
  return boxes;
}

int64_t FlatIndex(const Box& box, const Box& region, bool last) {
  int64_t index = 0;
  for (size_t d = 0; d < box.ndim(); ++d) {
    const int64_t at = region.offset[d] - box.offset[d] + (last ? region.shape[d] - 1 : 0);
    index = index * box.shape[d] + at;
  }
  return index;
}

}  // namespace

Box BoundsOf(const Piece& piece) {
  if (!piece.flat) return piece.box;
  Box bounds = MinimalBox(piece.box.shape, *piece.flat);
  for (size_t d = 0; d < bounds.ndim(); ++d) bounds.offset[d] += piece.box.offset[d];
  return bounds;
}

Overlap::Overlap(const Piece& source, const Piece& target) {
  source_size_ = source.size();
  if ((source.flat || target.flat) && source.box == target.box) {
    const int64_t size = source.box.size();
    const FlatRange a = source.flat.value_or(FlatRange{0, size}), b = target.flat.value_or(FlatRange{0, size});
    source_box_ = {{a.begin}, {a.size()}};
    target_box_ = {{b.begin}, {b.size()}};
    if (auto common = Intersect(source_box_, target_box_)) regions_.push_back(std::move(*common));
    return;
  }
  source_box_ = source.box;
  target_box_ = target.box;
  if (source.flat) source_begin_ = source.flat->begin;
  if (target.flat) target_begin_ = target.flat->begin;
  if (!source.flat && !target.flat) {
    if (auto common = Intersect(source.box, target.box)) regions_.push_back(std::move(*common));
    return;
  }
  const std::vector<Box> a = source.flat ? BoxesOf(source.box, *source.flat) : std::vector<Box>{source.box};
  const std::vector<Box> b = target.flat ? BoxesOf(target.box, *target.flat) : std::vector<Box>{target.box};
  for (const Box& x : a) {
    for (const Box& y : b) {
      if (auto common = Intersect(x, y)) regions_.push_back(std::move(*common));
    }
  }
}

int64_t Overlap::size() const {
  int64_t size = 0;
  for (const Box& region : regions_) size += region.size();
  return size;
}

FlatRange Overlap::source_span() const {
  FlatRange span{INT64_MAX, 0};
  for (const Box& region : regions_) {
    span.begin = std::min(span.begin, FlatIndex(source_box_, region, false) - source_begin_);
    span.end = std::max(span.end, FlatIndex(source_box_, region, true) + 1 - source_begin_);
  }
  return span;
}

void Overlap::AppendRuns(std::vector<FlatRange>& runs) const {
  const size_t first = runs.size();
  for (const Box& region : regions_) {
    // The trailing axes that are whole in the source make one run; the others are counted through.
    size_t axis = region.ndim();
    int64_t length = 1;
    while (axis > 0) {
      --axis;
      length *= region.shape[axis];
      if (region.shape[axis] != source_box_.shape[axis]) break;
    }
    const Shape strides = RowMajorStrides(source_box_.shape);
    int64_t begin = FlatIndex(source_box_, region, false) - source_begin_;
    Shape index(axis, 0);
    while (true) {
      runs.push_back({begin, begin + length});
      size_t d = axis;
      while (d > 0) {
        --d;
        begin += strides[d];
        if (++index[d] < region.shape[d]) break;
        begin -= strides[d] * region.shape[d];
        index[d] = 0;
        if (d == 0) goto done;
      }
      if (axis == 0) break;
    }
  done:;
  }
  std::sort(runs.begin() + static_cast<std::ptrdiff_t>(first), runs.end(),
            [](const FlatRange& a, const FlatRange& b) { return a.begin < b.begin; });
}

void Overlap::AppendCopies(FlatRange part, int bytes_per_element, std::vector<StridedCopy>& copies) const {
  const auto append = [&](const Box& region) {
    StridedCopy copy = CopyOfRegion(region, source_box_, target_box_, bytes_per_element);
    copy.source_offset -= (source_begin_ + part.begin) * bytes_per_element;
    copy.target_offset -= target_begin_ * bytes_per_element;
    copies.push_back(std::move(copy));
  };
  if (part.begin <= 0 && part.end >= source_size_) {
    for (const Box& region : regions_) append(region);
    return;
  }
  const std::vector<Box> boxes = BoxesOf(source_box_, {source_begin_ + part.begin, source_begin_ + part.end});
  for (const Box& box : boxes) {
    for (const Box& region : regions_) {
      if (const auto common = Intersect(box, region)) append(*common);
    }
  }
}

}  // namespace cairn
