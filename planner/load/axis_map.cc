#include "planner/load/axis_map.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace cairn {

AxisMap::AxisMap(Box source_box, Box target_box)
    : source_box_(std::move(source_box)), target_box_(std::move(target_box)) {
  extent_ = source_box_.shape;
  for (size_t i = 0; i < extent_.size(); ++i) {
    source_first_.push_back(static_cast<uint8_t>(i));
    source_axes_.push_back(static_cast<uint8_t>(i));
    current_.push_back({static_cast<uint8_t>(i)});
  }
  source_first_.push_back(static_cast<uint8_t>(extent_.size()));
}

void AxisMap::Permute(std::span<const int64_t> axes) {
  std::vector<Axes> permuted;
  for (int64_t axis : axes) permuted.push_back(current_[static_cast<size_t>(axis)]);
  current_ = std::move(permuted);
}

void AxisMap::Split(uint8_t axis, int64_t outer) {
  const int64_t inner = extent_[axis] / outer;
  extent_[axis] = outer;
  extent_.insert(extent_.begin() + axis + 1, inner);
  const auto move_up = [axis](Axes& axes) {
    for (uint8_t& other : axes) {
      if (other > axis) ++other;
    }
  };
  move_up(source_first_);
  for (Axes& axes : current_) move_up(axes);
  source_axes_.push_back(static_cast<uint8_t>(source_axes_.size()));
}

bool AxisMap::Take(size_t from, int64_t size) {
  while (size > 1) {
    if (current_[from].empty()) return false;
    const uint8_t axis = current_[from].front();
    const int64_t extent = extent_[axis];
    if (extent <= size) {
      if (size % extent != 0) return false;
      current_.back().push_back(axis);
      current_[from].erase(current_[from].begin());
      size /= extent;
      continue;
    }
    if (extent % size != 0 || extent_.size() >= 250) return false;
    Split(axis, size);
    current_.back().push_back(axis);
    current_[from].front() = static_cast<uint8_t>(axis + 1);
    return true;
  }
  return true;
}

bool AxisMap::Reshape(std::span<const int64_t> canonical) {
  if (current_.size() != 2 || canonical.size() < 3) return false;
  for (int64_t dim : canonical.subspan(1)) {
    if (dim <= 0) return false;
  }
  const auto elements = [&](size_t axis) {
    int64_t count = 1;
    for (uint8_t grid : current_[axis]) count *= extent_[grid];
    return count;
  };
  const int64_t rows = elements(0);
  if (rows % canonical[1] != 0) return false;
  Shape sizes(canonical.begin(), canonical.end());
  sizes[0] = rows / canonical[1];
  // The elements of both axes are moved, from the front, to the new axes behind them.
  for (size_t d = 0; d < sizes.size(); ++d) {
    current_.emplace_back();
    if (!Take(d < 2 ? 0 : 1, sizes[d])) return false;
  }
  // Only axes of one element are left.
  if (elements(0) != 1 || elements(1) != 1) return false;
  current_[3].insert(current_[3].end(), current_[0].begin(), current_[0].end());
  current_.back().insert(current_.back().end(), current_[1].begin(), current_[1].end());
  current_.erase(current_.begin(), current_.begin() + 2);
  return true;
}

bool AxisMap::Flatten() {
  if (current_.size() < 3) return false;
  std::vector<Axes> flat(2);
  for (size_t d = 0; d < current_.size(); ++d) {
    Axes& into = flat[d < 2 ? 0 : 1];
    into.insert(into.end(), current_[d].begin(), current_[d].end());
  }
  current_ = std::move(flat);
  return true;
}

std::span<const uint8_t> AxisMap::AxisOf(size_t axis, bool of_target) const {
  if (of_target) return {current_[axis].data(), current_[axis].size()};
  return std::span<const uint8_t>(source_axes_.data(), source_axes_.size())
      .subspan(source_first_[axis], static_cast<size_t>(source_first_[axis + 1] - source_first_[axis]));
}

bool AxisMap::straight() const {
  if (!plain() || current_.size() != extent_.size()) return false;
  for (size_t d = 0; d < current_.size(); ++d) {
    if (current_[d].size() != 1 || current_[d][0] != d) return false;
  }
  return true;
}

bool AxisMap::FitsTarget() const {
  if (current_.size() != target_box_.ndim()) return false;
  for (size_t d = 0; d < current_.size(); ++d) {
    int64_t size = 1;
    for (uint8_t axis : current_[d]) size *= extent_[axis];
    if (size != target_box_.shape[d]) return false;
  }
  return true;
}

std::vector<Box> AxisMap::Grid(const Box& box, const Box& own, bool of_target) const {
  const auto common = Intersect(box, own);
  if (!common) return {};
  Box whole;
  whole.offset.assign(extent_.size(), 0);
  whole.shape = extent_;
  std::vector<Box> boxes = {std::move(whole)};
  for (size_t d = 0; d < own.ndim(); ++d) {
    const std::span<const uint8_t> axes = AxisOf(d, of_target);
    const int64_t begin = common->offset[d] - own.offset[d];
    if (axes.size() == 1) {
      for (Box& grid : boxes) {
        grid.offset[axes[0]] = begin;
        grid.shape[axes[0]] = common->shape[d];
      }
      continue;
    }
    Shape extents;
    for (uint8_t axis : axes) extents.push_back(extent_[axis]);
    std::vector<Box> parts;
    AppendBoxes(extents, {begin, begin + common->shape[d]}, parts);
    std::vector<Box> next;
    for (const Box& grid : boxes) {
      for (const Box& part : parts) {
        Box& cut = next.emplace_back(grid);
        for (size_t k = 0; k < axes.size(); ++k) {
          cut.offset[axes[k]] = part.offset[k];
          cut.shape[axes[k]] = part.shape[k];
        }
      }
    }
    boxes = std::move(next);
  }
  for (Box& grid : boxes) {
    for (size_t d = 0; d < source_box_.ndim(); ++d) {
      if (source_first_[d + 1] - source_first_[d] == 1) grid.offset[source_first_[d]] += source_box_.offset[d];
    }
  }
  return boxes;
}

std::vector<Box> AxisMap::GridOfSource(const Box& box) const { return Grid(box, source_box_, false); }
std::vector<Box> AxisMap::GridOfTarget(const Box& box) const { return Grid(box, target_box_, true); }

std::optional<Box> AxisMap::SourceBounds(const Box& taken) const {
  const std::vector<Box> grids = GridOfTarget(taken);
  if (grids.empty()) return std::nullopt;
  if (!plain()) return source_box_;
  return grids.front();  // there is one, because no axis is composed
}

AxisMap::Walk AxisMap::WalkOver(const Box& box, const Box& own, bool of_target) const {
  Walk walk;
  walk.strides.assign(extent_.size(), 0);
  const Shape strides = RowMajorStrides(box.shape);
  for (size_t d = 0; d < own.ndim(); ++d) {
    walk.base += (own.offset[d] - box.offset[d]) * strides[d];
    const std::span<const uint8_t> axes = AxisOf(d, of_target);
    int64_t stride = strides[d];
    for (size_t k = axes.size(); k-- > 0;) {
      walk.strides[axes[k]] = stride;
      stride *= extent_[axes[k]];
    }
  }
  // The grid coordinates of whole axes begin where the source box begins.
  for (size_t d = 0; d < source_box_.ndim(); ++d) {
    const uint8_t first = source_first_[d];
    if (source_first_[d + 1] - first == 1) walk.base -= source_box_.offset[d] * walk.strides[first];
  }
  return walk;
}

AxisMap::Walk AxisMap::SourceWalk(const Box& box) const { return WalkOver(box, source_box_, false); }
AxisMap::Walk AxisMap::TargetWalk(const Box& box) const { return WalkOver(box, target_box_, true); }

}  // namespace cairn
