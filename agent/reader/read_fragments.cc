#include "agent/reader/read_fragments.h"

#include <algorithm>

#include "common/format/stored_item.h"

namespace cairn {

std::vector<ReadFragment> CutAtChecksums(const v1::ReadFile& file, uint64_t offset, uint64_t size) {
  std::vector<ReadFragment> fragments;
  if (file.unverified()) return fragments;
  const auto& offsets = file.item_offsets();
  const uint64_t end = offset + size;
  // The last item that begins at `offset` or before; the first one if none does.
  const auto after = std::upper_bound(offsets.begin(), offsets.end(), offset);
  auto item = static_cast<size_t>(std::max<int64_t>(after - offsets.begin() - 1, 0));
  for (; item < static_cast<size_t>(offsets.size()); ++item) {
    const uint64_t item_begin = offsets[static_cast<int>(item)];
    const uint64_t item_end = item_begin + file.item_sizes(static_cast<int>(item));
    if (item_begin >= end) break;
    uint64_t at = std::max(item_begin, offset);
    while (at < std::min(item_end, end)) {
      const uint64_t block_end = item_begin + ((at - item_begin) / kChecksumBlockBytes + 1) * kChecksumBlockBytes;
      const uint64_t stop = std::min({item_end, end, block_end});
      fragments.push_back({.item = item, .begin = at - item_begin, .bytes = stop - at});
      at = stop;
    }
  }
  return fragments;
}

}  // namespace cairn
