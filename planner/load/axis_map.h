// Describes how a box of a stored tensor becomes a box of a target: its axes are permuted, split and joined, and its
// elements are cast.
#ifndef CAIRN_PLANNER_LOAD_AXIS_MAP_H_
#define CAIRN_PLANNER_LOAD_AXIS_MAP_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "common/tensor/box.h"
#include "common/tensor/cast.h"
#include "common/tensor/flat_range.h"

namespace cairn {

// The elements form a grid. Its axes are those of the source box, in order, except that an axis that a reshape splits
// is several grid axes. An axis of the target box is the row-major composition of some grid axes, in any order. So any
// box of either side is a few boxes of the grid, and both sides walk over a box of the grid in strides.
//
// If a source axis is one grid axis, grid coordinates along it are those of the source tensor. Along the parts of an
// axis they begin at 0.
class AxisMap {
 public:
  using Axes = absl::InlinedVector<uint8_t, 4>;

  // Makes the identity between two boxes of one shape.
  AxisMap(Box source_box, Box target_box);

  // Adds a step after which axis i of the target box is the former axis axes[i]. `axes` has one entry for each axis
  // that the target has so far.
  void Permute(std::span<const int64_t> axes);
  // Adds a step that splits the two axes [d0 * d1, product of rest] into [d0, d1, *rest]. `canonical` is the new shape;
  // its first entry is ignored. Returns false if the axes cannot be split in this way.
  bool Reshape(std::span<const int64_t> canonical);
  // Does the reverse of Reshape.
  bool Flatten();

  // The tensor of the checkpoint, and that of the target.
  uint32_t source = 0;
  uint32_t target = 0;
  CastChain casts;  // empty without casts, else two entries or more

  const Box& source_box() const { return source_box_; }
  const Box& target_box() const { return target_box_; }
  bool is_cast() const { return casts.size() > 1; }
  // Returns true if no axis is split, so that grid coordinates are those of the source tensor.
  bool plain() const { return extent_.size() == source_first_.size() - 1; }
  // Returns true if no axis is permuted or split.
  bool straight() const;
  // Returns true if the target box has the shape that the steps give.
  bool FitsTarget() const;

  // Returns the grid boxes that make up a box of the source (or of the target); none if it does not meet the map's box
  // of that side.
  std::vector<Box> GridOfSource(const Box& box) const;
  std::vector<Box> GridOfTarget(const Box& box) const;
  // Returns a box of the source that contains all elements that go into a box of the target; nothing if there are none.
  std::optional<Box> SourceBounds(const Box& taken) const;

  // How to walk over a piece that is stored row-major over `box`: `base` is the element index of grid coordinate 0, and
  // strides[i] is the distance, in elements, of one step along grid axis i.
  struct Walk {
    int64_t base = 0;
    Shape strides;
  };
  Walk SourceWalk(const Box& box) const;
  Walk TargetWalk(const Box& box) const;

 private:
  std::vector<Box> Grid(const Box& box, const Box& own, bool of_target) const;
  Walk WalkOver(const Box& box, const Box& own, bool of_target) const;
  std::span<const uint8_t> AxisOf(size_t axis, bool of_target) const;
  // Moves grid axes of `size` elements in all from the front of current_[from] to the end of current_.back(). It splits
  // an axis if need be.
  bool Take(size_t from, int64_t size);
  // Splits grid axis `axis` into `outer` elements and, behind them, the rest. The axes behind it are numbered anew.
  void Split(uint8_t axis, int64_t outer);

  Box source_box_;
  Box target_box_;
  Shape extent_;               // one entry per grid axis
  Axes source_first_;          // axis i of the source is grid axes [source_first_[i], source_first_[i + 1])
  Axes source_axes_;           // 0, 1, 2 ...
  std::vector<Axes> current_;  // the grid axes of each axis of the target
};

}  // namespace cairn

#endif  // CAIRN_PLANNER_LOAD_AXIS_MAP_H_
