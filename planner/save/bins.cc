#include "planner/save/bins.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace cairn {

Bins SplitIntoBins(std::span<const BinItem> items, int bins) {
  const auto count = static_cast<size_t>(bins);
  Bins split;
  split.items.resize(count);
  split.tensor_bytes.resize(count);
  if (bins == 1) {
    for (uint32_t i = 0; i < items.size(); ++i) {
      split.items[0].push_back(i);
      if (!items[i].object) split.tensor_bytes[0] += items[i].bytes;
    }
    return split;
  }
  std::vector<std::pair<uint64_t, uint32_t>> tensors;
  size_t objects = 0;
  for (uint32_t i = 0; i < items.size(); ++i) {
    if (items[i].object) {
      split.items[objects++ % count].push_back(i);
    } else {
      tensors.emplace_back(~items[i].bytes, i);  // the complement sorts the largest first, equal ones in order
    }
  }
  std::sort(tensors.begin(), tensors.end());
  std::vector<std::pair<uint64_t, uint32_t>> heap;
  for (uint32_t bin = 0; bin < count; ++bin) heap.emplace_back(0, bin);
  for (const auto& [complement, item] : tensors) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    auto& [bytes, bin] = heap.back();
    split.items[bin].push_back(item);
    bytes += ~complement;
    split.tensor_bytes[bin] = bytes;
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  }
  return split;
}

}  // namespace cairn
