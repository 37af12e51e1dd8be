// Finds the common elements of a stored item and a target shard, if they are one run in both: the usual case, which
// needs no Overlap.
#ifndef CAIRN_PLANNER_LOAD_COMMON_RUN_H_
#define CAIRN_PLANNER_LOAD_COMMON_RUN_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "common/tensor/tiling.h"

namespace cairn {

// A box of a tensor, or a flat piece of it, as manifests and layout sets keep it: offsets and sizes and, if it is flat,
// begin and end of the range.
struct PackedPiece {
  PackedBox dims;
  bool flat;
};

// Elements that lie one after the other in both pieces, in the same order; none if `size` is 0.
struct CommonRun {
  int64_t source_begin = 0;  // counted from the begin of the piece
  int64_t target_begin = 0;
  int64_t size = 0;
};

// Both are pieces of one tensor of `ndim` dimensions. Returns nothing if the common elements are not one run, or if
// only an Overlap can say it: for flat pieces of different boxes.
std::optional<CommonRun> FindCommonRun(PackedPiece source, PackedPiece target, size_t ndim);

}  // namespace cairn

#endif  // CAIRN_PLANNER_LOAD_COMMON_RUN_H_
