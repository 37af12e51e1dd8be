// Checks that boxes tile a tensor: each element is in exactly one box. Exact, also for irregular tilings.
#ifndef CAIRN_COMMON_TENSOR_TILING_H_
#define CAIRN_COMMON_TENSOR_TILING_H_

#include <cstdint>
#include <span>
#include <vector>

#include "common/tensor/box.h"

namespace cairn {

// Points to a box in a pool of numbers: its ndim offsets, then its ndim sizes.
using PackedBox = const int64_t*;

// Returns true if the non-empty `boxes`, which must lie inside the tensor and have its number of dimensions, hold each
// of its elements exactly once. Equal boxes count as overlapping.
//
// Boxes tile the tensor exactly if their indicator functions add up to the tensor's. The difference of a function in
// one axis turns a box into two faces with opposite signs, and a sum of functions with bounded support is zero exactly
// if its difference is. So axis by axis every box is replaced by its faces, and equal faces with opposite signs cancel
// (a hash table adds up the signs). The tiling is exact if nothing is left after the last axis. In a regular tiling
// only the border is left after the first axis. The cost is O(n) for grids, O(n log n) if one axis is cut, and
// O(2^a * n) in the worst case, for a cut axes; the memory is about 60 bytes for each face. So tensors that are cut in
// more than kMostCutAxes axes count as not tiled.
inline constexpr size_t kMostCutAxes = 20;
bool TilesExactly(std::span<const int64_t> global_shape, std::span<const PackedBox> boxes);

struct TilingFault {
  // A gap if `boxes` is empty. Else an overlap: all of `boxes` hold the region (at least two indices, ascending).
  Box region;
  std::vector<uint32_t> boxes;
};

// Finds about `limit` faults at most. The result is empty exactly if TilesExactly returns true. It halves the tensor
// until each part is covered uniformly, and skips parts that are tiled exactly. Neighbouring regions of one fault are
// merged. Cost: O(n log n) for each fault.
std::vector<TilingFault> FindTilingFaults(std::span<const int64_t> global_shape, std::span<const PackedBox> boxes,
                                          size_t limit);

}  // namespace cairn

#endif  // CAIRN_COMMON_TENSOR_TILING_H_
