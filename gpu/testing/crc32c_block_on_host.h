// Runs the kernel of gpu/copy/crc32c_lanes.h without a GPU: the host computes lane after lane.
#ifndef CAIRN_GPU_TESTING_CRC32C_BLOCK_ON_HOST_H_
#define CAIRN_GPU_TESTING_CRC32C_BLOCK_ON_HOST_H_

#include <cstdint>

namespace cairn {

// Returns the raw CRC of one block.
uint32_t Crc32cBlockOnHost(const void* data, uint32_t bytes);

}  // namespace cairn

#endif  // CAIRN_GPU_TESTING_CRC32C_BLOCK_ON_HOST_H_
