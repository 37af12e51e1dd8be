// Finds the boxes of a list that meet a given one.
#ifndef CAIRN_PLANNER_LOAD_BOX_INDEX_H_
#define CAIRN_PLANNER_LOAD_BOX_INDEX_H_

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "common/tensor/box.h"

namespace cairn {

// This is a packed R-tree: it keeps the boxes in the order given, and each node bounds the eight below it. If boxes
// come in lexicographic order, as shards are kept, neighbours share a node, for grids and for one cut axis alike.
// Another order costs time, never correctness. Building is O(n), a query about O(log n + hits). Boxes that lie one
// behind the other along the first axis, as if that axis is the only one that is cut, are searched without the tree.
class BoxIndex {
 public:
  explicit BoxIndex(size_t ndim) : ndim_(ndim) {}

  // `box` must not be empty.
  void Add(const Box& box) {
    for (size_t d = 0; d < ndim_; ++d) leaves_.push_back(box.offset[d]);
    for (size_t d = 0; d < ndim_; ++d) leaves_.push_back(box.offset[d] + box.shape[d]);
    ++count_;
  }
  void Build() {
    if (ndim_ == 0) return;
    ascends_ = true;
    for (size_t i = 1; i < count_ && ascends_; ++i) ascends_ = Begin(i) >= End(i - 1);
    if (ascends_) return;
    const std::vector<int64_t>* below = &leaves_;
    size_t n = count_;
    while (n > kFan) {
      const size_t nodes = (n + kFan - 1) / kFan;
      std::vector<int64_t> bounds;
      bounds.reserve(nodes * 2 * ndim_);
      for (size_t node = 0; node < nodes; ++node) {
        const size_t first = node * kFan, last = std::min(n, first + kFan);
        for (size_t side = 0; side < 2; ++side) {
          for (size_t d = 0; d < ndim_; ++d) {
            int64_t bound = (*below)[first * 2 * ndim_ + side * ndim_ + d];
            for (size_t i = first + 1; i < last; ++i) {
              const int64_t other = (*below)[i * 2 * ndim_ + side * ndim_ + d];
              bound = side ? std::max(bound, other) : std::min(bound, other);
            }
            bounds.push_back(bound);
          }
        }
      }
      levels_.push_back(std::move(bounds));
      below = &levels_.back();
      n = nodes;
    }
  }

  // Calls `found(index)` for each box that meets `box`, in ascending order.
  template <typename Found>
  void ForEach(const Box& box, Found&& found) const {
    if (ndim_ == 0) {  // all scalars are at one place
      for (size_t i = 0; i < count_; ++i) found(i);
      return;
    }
    if (ascends_) {
      size_t first = 0;
      for (size_t last = count_; first < last;) {
        const size_t middle = (first + last) / 2;
        End(middle) <= box.offset[0] ? first = middle + 1 : last = middle;
      }
      const int64_t end = box.offset[0] + box.shape[0];
      for (; first < count_ && Begin(first) < end; ++first) Visit(0, first, box, found);
      return;
    }
    const size_t top = levels_.size();
    size_t n = count_;
    for (size_t i = 0; i < top; ++i) n = (n + kFan - 1) / kFan;
    for (size_t i = 0; i < n; ++i) Visit(top, i, box, found);
  }

 private:
  static constexpr size_t kFan = 8;

  // Along the first axis.
  int64_t Begin(size_t i) const { return leaves_[i * 2 * ndim_]; }
  int64_t End(size_t i) const { return leaves_[i * 2 * ndim_ + ndim_]; }

  template <typename Found>
  void Visit(size_t level, size_t node, const Box& box, Found& found) const {
    const int64_t* bounds = (level == 0 ? leaves_ : levels_[level - 1]).data() + node * 2 * ndim_;
    for (size_t d = 0; d < ndim_; ++d) {
      if (bounds[d] >= box.offset[d] + box.shape[d] || bounds[ndim_ + d] <= box.offset[d]) return;
    }
    if (level == 0) return found(node);
    const size_t below = level == 1 ? count_ : levels_[level - 2].size() / (2 * ndim_);
    for (size_t i = node * kFan; i < std::min(below, node * kFan + kFan); ++i) Visit(level - 1, i, box, found);
  }

  size_t ndim_;
  size_t count_ = 0;
  bool ascends_ = false;
  std::vector<int64_t> leaves_;
  std::vector<std::vector<int64_t>> levels_;
};

}  // namespace cairn

#endif  // CAIRN_PLANNER_LOAD_BOX_INDEX_H_
