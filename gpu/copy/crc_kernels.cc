#include "gpu/copy/crc_kernels.h"

#include <algorithm>

#include "common/base/crc32c.h"

namespace cairn {

const char* const kCrc32cKernelPtx =
#include "gpu/copy/crc32c_kernel_ptx.inc"
    ;
const char* const kCrc64KernelPtx =
#include "gpu/copy/crc64_kernel_ptx.inc"
    ;

uint32_t Crc32cOfBlocks(const uint32_t* raw, int64_t bytes) {
  // The CRC of bytes is their raw CRC XOR the CRC of the same number of zeros.
  static const uint32_t zeros_of_block = ExtendCrc32cByZeros(0, crc_lanes::kBlockBytes);
  uint32_t crc = 0;
  for (int64_t at = 0; at < bytes; at += crc_lanes::kBlockBytes, ++raw) {
    const auto size = static_cast<uint64_t>(std::min<int64_t>(crc_lanes::kBlockBytes, bytes - at));
    const uint32_t zeros = size == crc_lanes::kBlockBytes ? zeros_of_block : ExtendCrc32cByZeros(0, size);
    crc = CombineCrc32c(crc, *raw ^ zeros, size);
  }
  return crc;
}

}  // namespace cairn
