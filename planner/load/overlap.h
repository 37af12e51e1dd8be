// Finds the common elements of a stored item and a target shard. Each of the two is a box, or a flat piece of a box.
#ifndef CAIRN_PLANNER_LOAD_OVERLAP_H_
#define CAIRN_PLANNER_LOAD_OVERLAP_H_

#include <optional>
#include <vector>

#include "common/tensor/box.h"
#include "common/tensor/flat_range.h"
#include "planner/load/axis_map.h"
#include "planner/load/strided_copy.h"

namespace cairn {

// The elements of one side: those of `box` or, if `flat` is set, this range of the box's flattening. They are stored
// row-major and contiguously.
struct Piece {
  Box box;
  std::optional<FlatRange> flat;

  int64_t size() const { return flat ? flat->size() : box.size(); }
};

// Returns the smallest box that holds the piece, which must not be empty.
Box BoundsOf(const Piece& piece);

// The common elements, as disjoint boxes, and the copies that move them.
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
  // Returns the smallest range of the source's elements that contains the common ones, counted from the source's begin.
  FlatRange source_span() const;
  // Returns true if the common elements fill this range.
  bool contiguous() const { return source_span().size() == size(); }

  // Returns the dtypes through which the elements are cast; empty if they are not cast.
  CastChain casts() const { return link_ == nullptr ? CastChain() : link_->casts; }

  // Appends the ranges of the source's elements that are common, counted from the source's begin. They ascend, and two
  // neighbours always have a gap between them.
  void AppendRuns(std::vector<FlatRange>& runs) const;

  // Appends the copies of the common elements that lie in `part`, a range of the source's elements. source_offset
  // counts from the begin of `part`, target_offset from the begin of the target. `bytes_per_element` is that of the
  // source. With a link that casts, StridedCopy::element_bytes is the size of one element. Dimensions are in the order
  // of the source.
  void AppendCopies(FlatRange part, int bytes_per_element, std::vector<StridedCopy>& copies) const;

 private:
  int64_t FlatIndex(const Box& region, bool last) const;
  // Returns the boxes that `range` of the source's box consists of, in the coordinates of regions_.
  std::vector<Box> SourceBoxes(FlatRange range) const;

  const AxisMap* link_;
  // In the coordinates of the tensor; if both pieces are of the same box, in those of the box's flattening.
  Box source_box_;
  int64_t source_begin_ = 0;  // the index of the piece's first element in the flattening of its box
  int64_t source_size_ = 0;
  // The element index of a region's point in the piece is base + sum(coordinate * stride).
  AxisMap::Walk source_walk_;
  AxisMap::Walk target_walk_;
  std::vector<Box> regions_;
};

}  // namespace cairn

#endif  // CAIRN_PLANNER_LOAD_OVERLAP_H_
