// Checks that boxes tile a tensor, so that each element is held exactly once. This is exact for every tiling, also for
// irregular ones.
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
// Boxes tile the tensor exactly if their indicator functions add up to the tensor's. The difference of a
// function in one axis turns a box into two faces with opposite signs, and a sum of functions with bounded support is
// zero exactly if its difference is. So axis by axis every box becomes faces, and equal faces cancel (a hash table adds
// up their signs). The tiling is exact if nothing is left after the last axis. In regular tilings the first axis
// cancels everything but the border. It takes O(n) for one cut axis and for grids, O(2^ndim * n) at worst, and 16 bytes
// per box and face.
bool TilesExactly(std::span<const int64_t> global_shape, std::span<const PackedBox> boxes);

struct TilingFault {
  // None of the boxes holds this region, or all of `boxes` do (at least two, ascending indices).
  Box region;
  std::vector<uint32_t> boxes;
};

// Finds at most about `limit` faults, and none exactly if TilesExactly. It halves the tensor until each part is covered
// uniformly, and leaves out parts that are tiled exactly. Neighbouring regions of one fault are merged. Cost: O(n log
// n) for each fault.
std::vector<TilingFault> FindTilingFaults(std::span<const int64_t> global_shape, std::span<const PackedBox> boxes,
                                          size_t limit);

}  // namespace cairn

#endif  // CAIRN_COMMON_TENSOR_TILING_H_
