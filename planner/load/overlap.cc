#include "planner/load/overlap.h"

#include <algorithm>

namespace cairn {
namespace {

std::vector<Box> BoxesOf(const Box& box, FlatRange range) {
  std::vector<Box> boxes;
  AppendBoxes(box.shape, range, boxes);
  for (Box& part : boxes) {
    for (size_t d = 0; d < part.ndim(); ++d) part.offset[d] += box.offset[d];
  }
  return boxes;
}

// Returns the walk over a row-major box. What is stored of the box begins at element `begin` of its flattening.
AxisMap::Walk WalkOver(const Box& box, int64_t begin) {
  AxisMap::Walk walk;
  walk.strides = RowMajorStrides(box.shape);
  walk.base = -begin;
  for (size_t d = 0; d < box.ndim(); ++d) walk.base -= box.offset[d] * walk.strides[d];
  return walk;
}

}  // namespace

Box BoundsOf(const Piece& piece) {
  if (!piece.flat) return piece.box;
  Box bounds = MinimalBox(piece.box.shape, *piece.flat);
  for (size_t d = 0; d < bounds.ndim(); ++d) bounds.offset[d] += piece.box.offset[d];
  return bounds;
}

Overlap::Overlap(const Piece& source, const Piece& target, const AxisMap* link) : link_(link) {
  source_size_ = source.size();
  if (link == nullptr && (source.flat || target.flat) && source.box == target.box) {
    const int64_t size = source.box.size();
    const FlatRange a = source.flat.value_or(FlatRange{0, size}), b = target.flat.value_or(FlatRange{0, size});
    source_box_ = {{a.begin}, {a.size()}};
    const Box target_box = {{b.begin}, {b.size()}};
    source_walk_ = WalkOver(source_box_, 0);
    target_walk_ = WalkOver(target_box, 0);
    if (auto common = Intersect(source_box_, target_box)) regions_.push_back(std::move(*common));
    return;
  }
  source_box_ = source.box;
  if (source.flat) source_begin_ = source.flat->begin;
  const int64_t target_begin = target.flat ? target.flat->begin : 0;
  if (link == nullptr) {
    source_walk_ = WalkOver(source.box, source_begin_);
    target_walk_ = WalkOver(target.box, target_begin);
    if (!source.flat && !target.flat) {
      if (auto common = Intersect(source.box, target.box)) regions_.push_back(std::move(*common));
      return;
    }
  } else {
    source_walk_ = link->SourceWalk(source.box);
    source_walk_.base -= source_begin_;
    target_walk_ = link->TargetWalk(target.box);
    target_walk_.base -= target_begin;
  }
  const std::vector<Box> a = SourceBoxes(source.flat.value_or(FlatRange{0, source_size_}));
  std::vector<Box> b = target.flat ? BoxesOf(target.box, *target.flat) : std::vector<Box>{target.box};
  if (link != nullptr) {
    std::vector<Box> grids;
    for (const Box& box : b) {
      for (Box& grid : link->GridOfTarget(box)) grids.push_back(std::move(grid));
    }
    b = std::move(grids);
  }
  for (const Box& x : a) {
    for (const Box& y : b) {
      if (auto common = Intersect(x, y)) regions_.push_back(std::move(*common));
    }
  }
}

std::vector<Box> Overlap::SourceBoxes(FlatRange range) const {
  std::vector<Box> boxes =
      range.begin == 0 && range.end == source_box_.size() ? std::vector<Box>{source_box_} : BoxesOf(source_box_, range);
  if (link_ == nullptr) return boxes;
  std::vector<Box> grids;
  for (const Box& box : boxes) {
    for (Box& grid : link_->GridOfSource(box)) grids.push_back(std::move(grid));
  }
  return grids;
}

int64_t Overlap::FlatIndex(const Box& region, bool last) const {
  int64_t index = source_walk_.base;
  for (size_t d = 0; d < region.ndim(); ++d) {
    index += (region.offset[d] + (last ? region.shape[d] - 1 : 0)) * source_walk_.strides[d];
  }
  return index;
}

int64_t Overlap::size() const {
  int64_t size = 0;
  for (const Box& region : regions_) size += region.size();
  return size;
}

FlatRange Overlap::source_span() const {
  FlatRange span{INT64_MAX, 0};
  for (const Box& region : regions_) {
    span.begin = std::min(span.begin, FlatIndex(region, false));
    span.end = std::max(span.end, FlatIndex(region, true) + 1);
  }
  return span;
}

void Overlap::AppendRuns(std::vector<FlatRange>& runs) const {
  const size_t first = runs.size();
  const Shape& strides = source_walk_.strides;
  for (const Box& region : regions_) {
    // The last axes, as far as their elements are contiguous, make one run. The loop counts through the other axes.
    size_t axis = region.ndim();
    int64_t length = 1;
    while (axis > 0 && (strides[axis - 1] == length || region.shape[axis - 1] == 1)) length *= region.shape[--axis];
    int64_t begin = FlatIndex(region, false);
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
  const bool cast = link_ != nullptr && link_->is_cast();
  const int64_t target_bytes = cast ? BytesOf(link_->casts.back()) : bytes_per_element;
  const auto append = [&](const Box& region) {
    StridedCopy& copy = copies.emplace_back();
    copy.element_bytes = bytes_per_element;
    copy.source_offset = (source_walk_.base - part.begin) * bytes_per_element;
    copy.target_offset = target_walk_.base * target_bytes;
    for (size_t d = region.ndim(); d-- > 0;) {
      const int64_t source_stride = source_walk_.strides[d] * bytes_per_element;
      const int64_t target_stride = target_walk_.strides[d] * target_bytes;
      copy.source_offset += region.offset[d] * source_stride;
      copy.target_offset += region.offset[d] * target_stride;
      copy.AddOuter(region.shape[d], source_stride, target_stride, cast);
    }
    copy.Finish();
  };
  if (part.begin <= 0 && part.end >= source_size_) {
    for (const Box& region : regions_) append(region);
    return;
  }
  const std::vector<Box> boxes = SourceBoxes({source_begin_ + part.begin, source_begin_ + part.end});
  for (const Box& box : boxes) {
    for (const Box& region : regions_) {
      if (const auto common = Intersect(box, region)) append(*common);
    }
  }
}

}  // namespace cairn
