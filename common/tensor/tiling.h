// Checks that boxes tile a tensor, so that each element is held exactly once. This is exact for every tiling, also for
// irregular ones.
#ifndef CAIRN_COMMON_TENSOR_TILING_H_
#define CAIRN_COMMON_TENSOR_TILING_H_

#include <cstdint>
#include <span>
#include <vector>

#include "common/tensor/box.h"

namespace cairn {

// A box as it lies in a pool: its ndim offsets, then its ndim sizes.
using PackedBox = const int64_t*;

// True if the non-empty `boxes`, all inside the tensor and of its number of dimensions, hold each of its elements
// exactly once. Boxes that are equal count as overlapping.
//
// Algorithm: boxes tile the tensor exactly if their indicator functions add up to the tensor's. The difference of a
// function in one axis turns a box into two faces with opposite signs; a sum of functions with bounded support is zero
// exactly if its difference is. So axis by axis every box becomes faces, equal faces cancel (a hash table adds up their
// signs), and the tiling is exact if nothing is left behind the last axis. Regular tilings cancel in the first axis but
// for their border. Cost: O(n) for one cut axis and for grids, O(2^ndim * n) at worst; 16 bytes per box and face.
bool TilesExactly(std::span<const int64_t> global_shape, std::span<const PackedBox> boxes);

struct TilingFault {
  // Held by none of the boxes, or by all of `boxes` (at least two, ascending indices).
  Box region;
  std::vector<uint32_t> boxes;
};

// Finds at most about `limit` faults; there is none exactly if TilesExactly. It halves the tensor until a part is
// uniformly covered, and leaves out the parts that are tiled exactly. This costs O(n log n) for each fault.
// Neighbouring regions of
// the same fault are merged.
std::vector<TilingFault> FindTilingFaults(std::span<const int64_t> global_shape, std::span<const PackedBox> boxes,
                                          size_t limit);

}  // namespace cairn

#endif  // CAIRN_COMMON_TENSOR_TILING_H_
