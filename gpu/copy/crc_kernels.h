// The kernels that compute CRCs on a GPU, and the host's function that combines their results.
#ifndef CAIRN_GPU_COPY_CRC_KERNELS_H_
#define CAIRN_GPU_COPY_CRC_KERNELS_H_

#include <cstdint>

#include "gpu/copy/crc_lanes.h"

namespace cairn {

// The kernels in PTX, with a terminating zero. The driver compiles them for its GPU.
extern const char* const kCrc32cKernelPtx;
extern const char* const kCrc64KernelPtx;

inline int64_t CrcBlocksOf(int64_t bytes) {
  return (bytes + crc_lanes::kBlockBytes - 1) / int64_t{crc_lanes::kBlockBytes};
}

// Returns the CRC32C of an array of `bytes` bytes from the raw CRCs of its blocks of kBlockBytes, as the kernel
// computes them.
uint32_t Crc32cOfBlocks(const uint32_t* raw, int64_t bytes);

}  // namespace cairn

#endif  // CAIRN_GPU_COPY_CRC_KERNELS_H_
