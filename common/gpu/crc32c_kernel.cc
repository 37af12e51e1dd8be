#include "common/gpu/crc32c_kernel.h"

#include <algorithm>
#include <array>

#include "common/base/crc32c.h"

namespace cairn {

const char* const kCrc32cKernelPtx =
#include "common/gpu/crc32c_kernel_ptx.inc"
    ;

uint32_t Crc32cOfBlocks(const uint32_t* raw, int64_t bytes) {
  // A CRC is its raw CRC plus that of as many zeros.
  static const uint32_t zeros_of_block = ExtendCrc32cByZeros(0, crc32c::kBlockBytes);
  uint32_t crc = 0;
  for (int64_t at = 0; at < bytes; at += crc32c::kBlockBytes, ++raw) {
    const auto size = static_cast<uint64_t>(std::min<int64_t>(crc32c::kBlockBytes, bytes - at));
    const uint32_t zeros = size == crc32c::kBlockBytes ? zeros_of_block : ExtendCrc32cByZeros(0, size);
    crc = CombineCrc32c(crc, *raw ^ zeros, size);
  }
  return crc;
}

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
