// Finds the common elements of a stored item and a target shard, each of which is a box or a flat piece of one.
#ifndef CAIRN_PLANNER_LOAD_OVERLAP_H_
#define CAIRN_PLANNER_LOAD_OVERLAP_H_

#include <optional>
#include <vector>

#include "common/tensor/box.h"
#include "common/tensor/flat_range.h"
#include "planner/load/axis_map.h"
#include "planner/load/strided_copy.h"

namespace cairn {

// One side stores the elements of `box` or, if `flat` is set, those of that range of the box's flattening. The elements
// are row-major and contiguous.
struct Piece {
  Box box;
  std::optional<FlatRange> flat;

  int64_t size() const { return flat ? flat->size() : box.size(); }
};

// Returns the smallest box that holds the piece, which must not be empty.
Box BoundsOf(const Piece& piece);

// Holds the common elements as disjoint boxes, and how to copy them.
class Overlap {
 public:
  // Either both are pieces of one tensor, or `link` says which elements of the source become which elements of the
  // target. `link` must outlive this object.
  Overlap(const Piece& source, const Piece& target, const AxisMap* link = nullptr);

  bool empty() const { return regions_.empty(); }
  int64_t size() const;
  // Returns boxes of the link's grid, or of the tensor if there is no link.
  const std::vector<Box>& regions() const { return regions_; }
  // Returns true if the boxes are in coordinates of the source tensor.
  bool in_source() const { return link_ == nullptr || link_->plain(); }
  // Returns the range of the source's elements in which the common ones lie, counted from the source's begin.
  FlatRange source_span() const;
  // Returns true if the common elements fill this range.
  bool contiguous() const { return source_span().size() == size(); }

  // Returns the dtypes through which the elements are cast; empty if they are not cast.
  CastChain casts() const { return link_ == nullptr ? CastChain() : link_->casts; }

  // Appends the ranges of the source's elements that are common, counted from the source's begin. They ascend, and they
  // neither meet nor touch.
  void AppendRuns(std::vector<FlatRange>& runs) const;

  // Appends the copies of those common elements that lie in `part` of the source's elements. Offsets count from the
  // begin of the source's part, and from the begin of the target; bytes_per_element is the source's. With a link that
  // casts, element_bytes is that of one element. Dimensions are in the order of the source.
  void AppendCopies(FlatRange part, int bytes_per_element, std::vector<StridedCopy>& copies) const;

 private:
  int64_t FlatIndex(const Box& region, bool last) const;
  // Returns the boxes that `range` of the source's box consists of, in the coordinates of regions_.
  std::vector<Box> SourceBoxes(FlatRange range) const;

  const AxisMap* link_;
  // In the coordinates of the tensor; or, where both pieces have one box, in those of the box's flattening.
  Box source_box_;
  int64_t source_begin_ = 0;  // where the piece begins in the flattening of its box
  int64_t source_size_ = 0;
  // A point of a region has this element index in the piece: base + sum(coordinate * stride).
  AxisMap::Walk source_walk_;
  AxisMap::Walk target_walk_;
  std::vector<Box> regions_;
};

}  // namespace cairn

#endif  // CAIRN_PLANNER_LOAD_OVERLAP_H_
