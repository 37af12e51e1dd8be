// The kernel that computes CRC32C on a GPU, and the host's function that combines the kernel's results.
#ifndef CAIRN_GPU_COPY_CRC32C_KERNEL_H_
#define CAIRN_GPU_COPY_CRC32C_KERNEL_H_

#include <cstdint>

#include "gpu/copy/crc32c_lanes.h"

namespace cairn {

// The kernel in PTX, with a terminating zero. The driver compiles it for its GPU.
extern const char* const kCrc32cKernelPtx;

inline int64_t Crc32cBlocksOf(int64_t bytes) {
  return (bytes + crc32c::kBlockBytes - 1) / int64_t{crc32c::kBlockBytes};
}

// Returns the CRC32C of an array of `bytes` bytes from the raw CRCs of its blocks, as the kernel computes them.
uint32_t Crc32cOfBlocks(const uint32_t* raw, int64_t bytes);

}  // namespace cairn

#endif  // CAIRN_GPU_COPY_CRC32C_KERNEL_H_
