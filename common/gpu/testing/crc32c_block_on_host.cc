#include "common/gpu/testing/crc32c_block_on_host.h"

#include <array>

#include "common/gpu/crc32c_lanes.h"

namespace cairn {

uint32_t Crc32cBlockOnHost(const void* data, uint32_t bytes) {
  static const auto table = [] {
    std::array<uint32_t, crc32c::kTableEntries> entries;
    for (uint32_t i = 0; i < entries.size(); ++i) entries[i] = crc32c::TableEntry(i);
    return entries;
  }();
  const auto* from = static_cast<const unsigned char*>(data);
  const auto load = [from](uint32_t at) {
    crc32c::Four four = {};
    for (uint32_t i = 0; i < 4; ++i) four.word[i] = crc32c::LoadWord(from + at + 4 * i);
    return four;
  };
  uint32_t sum = 0;
  for (uint32_t lane = 0; lane < crc32c::kLanes; ++lane) {
    sum ^= crc32c::LaneSum(from, bytes, lane, load, [](uint32_t entry) { return table[entry]; });
  }
  return sum;
}

}  // namespace cairn
