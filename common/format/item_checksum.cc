#include "common/format/item_checksum.h"

#include <algorithm>
#include <utility>

#include "common/base/crc32c.h"

namespace cairn {

ItemChecksummer::ItemChecksummer(std::vector<uint64_t> begins) : begins_(std::move(begins)) {}

std::vector<ItemChecksummer::Fragment> ItemChecksummer::Touch(uint64_t offset, const char* bytes, uint64_t size) const {
  std::vector<Fragment> fragments;
  const uint64_t end = std::min(offset + size, begins_.back());
  // The last item that begins at or before `offset`. So earlier items without bytes are skipped.
  size_t item = static_cast<size_t>(std::upper_bound(begins_.begin(), begins_.end(), offset) - begins_.begin());
  if (item > 0) --item;
  uint64_t at = offset;
  while (at < end) {
    if (at >= begins_[item + 1]) {
      ++item;
      continue;
    }
    const uint64_t block = (at - begins_[item]) / kChecksumBlockBytes;
    const uint64_t stop = std::min({end, begins_[item + 1], begins_[item] + (block + 1) * kChecksumBlockBytes});
    fragments.push_back({static_cast<uint32_t>(item), block, Crc32c(bytes + (at - offset), stop - at), stop - at});
    at = stop;
  }
  return fragments;
}

std::vector<ItemChecksums> ItemChecksummer::Combine(std::span<const std::vector<Fragment>> chunks) const {
  std::vector<ItemChecksums> items(begins_.size() - 1);
  for (size_t i = 0; i < items.size(); ++i) items[i].blocks.resize(ChecksumBlockCount(begins_[i + 1] - begins_[i]));
  for (const auto& chunk : chunks) {
    for (const Fragment& fragment : chunk) {
      ItemChecksums& item = items[fragment.item];
      uint32_t& block = item.blocks[fragment.block];
      block = CombineCrc32c(block, fragment.crc32c, fragment.bytes);
      item.crc32c = CombineCrc32c(item.crc32c, fragment.crc32c, fragment.bytes);
    }
  }
  return items;
}

}  // namespace cairn
