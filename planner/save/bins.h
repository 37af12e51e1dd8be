// Distributes the items of one rank over bins, exactly as Megatron's `_split_by_size_and_type` does.
#ifndef CAIRN_PLANNER_SAVE_BINS_H_
#define CAIRN_PLANNER_SAVE_BINS_H_

#include <cstdint>
#include <span>
#include <vector>

namespace cairn {

struct BinItem {
  uint64_t bytes = 0;
  bool object = false;
};

struct Bins {
  // Indices of the items, in the order in which they lie in their bin.
  std::vector<std::vector<uint32_t>> items;
  std::vector<uint64_t> tensor_bytes;
};

// One bin keeps the items in their order. With more bins, objects go to the bins in turn. Then each tensor, largest
// first (equal ones in their order), goes to the bin with the smallest (bytes of tensors so far, index). `bins` >= 1.
// O(n log n).
Bins SplitIntoBins(std::span<const BinItem> items, int bins);

}  // namespace cairn

#endif  // CAIRN_PLANNER_SAVE_BINS_H_
