#include "gpu/testing/crc32c_block_on_host.h"

#include <array>

#include "gpu/copy/crc32c_lanes.h"

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
  const auto look_up = [](uint32_t word, uint32_t part) {
    const uint32_t mask = (1u << crc32c::PartBits(part)) - 1;
    return table[crc32c::PartEntry(part) + (word >> crc32c::PartShift(part) & mask)];
  };
  const uint32_t rows = bytes / crc32c::kRowBytes, tail = bytes % crc32c::kRowBytes;
  std::array<uint32_t, crc32c::kLanes> lanes;
  uint32_t last = 0;
  for (uint32_t lane = 0; lane < crc32c::kLanes; ++lane) {
    lanes[lane] = crc32c::JoinWords(crc32c::LaneRows(rows, lane, load, look_up));
    last ^= crc32c::LaneTail(from + rows * crc32c::kRowBytes, tail, lane);
  }
  for (uint32_t i = 0; i < 16; ++i) lanes[i] = crc32c::Join<1>(lanes[2 * i], lanes[2 * i + 1]);
  for (uint32_t i = 0; i < 8; ++i) lanes[i] = crc32c::Join<2>(lanes[2 * i], lanes[2 * i + 1]);
  for (uint32_t i = 0; i < 4; ++i) lanes[i] = crc32c::Join<4>(lanes[2 * i], lanes[2 * i + 1]);
  for (uint32_t i = 0; i < 2; ++i) lanes[i] = crc32c::Join<8>(lanes[2 * i], lanes[2 * i + 1]);
  return crc32c::ShiftRows(crc32c::Join<16>(lanes[0], lanes[1]), tail) ^ last;
}

}  // namespace cairn
