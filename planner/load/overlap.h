// Finds the common elements of a stored item and a target shard, each of which is a box or a flat piece of one.
#ifndef CAIRN_PLANNER_LOAD_OVERLAP_H_
#define CAIRN_PLANNER_LOAD_OVERLAP_H_

#include <optional>
#include <vector>

#include "common/tensor/box.h"
#include "common/tensor/flat_range.h"
#include "common/tensor/strided_copy.h"
#include "planner/load/axis_map.h"

namespace cairn {

// What one side stores: the elements of `box`, or, if `flat` is set, that range of its flattening. They are row-major
// and contiguous.
struct Piece {
  Box box;
  std::optional<FlatRange> flat;

  int64_t size() const { return flat ? flat->size() : box.size(); }
};

// The smallest box that holds the piece. It must not be empty.
Box BoundsOf(const Piece& piece);

// The common elements as disjoint boxes, and how to copy them.
class Overlap {
 public:
  // Both are pieces of one tensor, or `link` says which elements of the target are which elements of the source. `link`
  // must outlive this object.
  Overlap(const Piece& source, const Piece& target, const AxisMap* link = nullptr);

  bool empty() const { return regions_.empty(); }
  int64_t size() const;
  // Boxes of the link's grid, or of the tensor.
  const std::vector<Box>& regions() const { return regions_; }
  // True if the boxes are in coordinates of the source tensor.
  bool in_source() const { return link_ == nullptr || link_->plain(); }
  // The span of elements of the source in which the common ones lie, counted from the source's begin.
  FlatRange source_span() const;
  // True if the common elements fill this span.
  bool contiguous() const { return source_span().size() == size(); }

  // The dtypes through which the elements are cast on their way; empty if they are not cast.
  CastChain casts() const { return link_ == nullptr ? CastChain() : link_->casts; }

  // Appends the ranges of source elements that are common, counted from the source's begin. They ascend, and they
  // neither meet nor touch.
  void AppendRuns(std::vector<FlatRange>& runs) const;

  // The copies of those common elements that lie in `part` of the source's elements. Offsets count from the begins of
  // the source's part and of the target; bytes_per_element is the source's. With a link that casts, element_bytes is
  // one element's. Dimensions are in the order of the source.
  void AppendCopies(FlatRange part, int bytes_per_element, std::vector<StridedCopy>& copies) const;

 private:
  int64_t FlatIndex(const Box& region, bool last) const;
  // Boxes that `range` of the source's box consists of, in the coordinates of regions_.
  std::vector<Box> SourceBoxes(FlatRange range) const;

  const AxisMap* link_;
  // In the coordinates of the tensor or, where both have one box, of its flattening.
  Box source_box_;
  int64_t source_begin_ = 0;  // of the piece within its box, flat
  int64_t source_size_ = 0;
  // Element index in the piece of a point of a region: base + sum(coordinate * stride).
  AxisMap::Walk source_walk_;
  AxisMap::Walk target_walk_;
  std::vector<Box> regions_;
};

}  // namespace cairn

#endif  // CAIRN_PLANNER_LOAD_OVERLAP_H_
