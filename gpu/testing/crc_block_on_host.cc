#include "gpu/testing/crc_block_on_host.h"

#include <array>

namespace cairn {

using crc_lanes::kLanes;
using crc_lanes::kRowBytes;

template <typename Code>
typename Code::Sum CrcBlockOnHost(const void* data, uint32_t bytes) {
  using Lanes = crc_lanes::Lanes<Code>;
  using Sum = typename Code::Sum;
  static const auto table = [] {
    std::array<Sum, crc_lanes::kTableEntries> entries;
    for (uint32_t i = 0; i < entries.size(); ++i) entries[i] = Lanes::TableEntry(i);
    return entries;
  }();
  const auto* from = static_cast<const unsigned char*>(data);
  const auto load = [from](uint32_t at) { return Lanes::LoadPiece(from + at); };
  const auto look_up = [](Sum sum, uint32_t part) {
    const Sum mask = (Sum{1} << Code::PartBits(part)) - 1;
    return table[Code::PartEntry(part) + static_cast<uint32_t>(sum >> Code::PartShift(part) & mask)];
  };
  const uint32_t rows = bytes / kRowBytes, tail = bytes % kRowBytes;
  std::array<Sum, kLanes> lanes;
  Sum last = 0;
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    lanes[lane] = Lanes::JoinWords(Lanes::LaneRows(rows, lane, load, look_up));
    last ^= Lanes::LaneTail(from + rows * kRowBytes, tail, lane);
  }
  for (uint32_t i = 0; i < 16; ++i) lanes[i] = Lanes::template Join<1>(lanes[2 * i], lanes[2 * i + 1]);
  for (uint32_t i = 0; i < 8; ++i) lanes[i] = Lanes::template Join<2>(lanes[2 * i], lanes[2 * i + 1]);
  for (uint32_t i = 0; i < 4; ++i) lanes[i] = Lanes::template Join<4>(lanes[2 * i], lanes[2 * i + 1]);
  for (uint32_t i = 0; i < 2; ++i) lanes[i] = Lanes::template Join<8>(lanes[2 * i], lanes[2 * i + 1]);
  return Lanes::ShiftRows(Lanes::template Join<16>(lanes[0], lanes[1]), tail) ^ last;
}

template uint32_t CrcBlockOnHost<crc_lanes::Crc32c>(const void* data, uint32_t bytes);
template crc_lanes::Long CrcBlockOnHost<crc_lanes::Crc64>(const void* data, uint32_t bytes);

}  // namespace cairn
