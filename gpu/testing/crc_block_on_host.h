// Runs the kernels of gpu/copy/crc_lanes.h without a GPU: the host computes lane after lane.
#ifndef CAIRN_GPU_TESTING_CRC_BLOCK_ON_HOST_H_
#define CAIRN_GPU_TESTING_CRC_BLOCK_ON_HOST_H_

#include <cstdint>

#include "gpu/copy/crc_lanes.h"

namespace cairn {

// Returns the raw CRC of one block. `Code` is crc_lanes::Crc32c or crc_lanes::Crc64.
template <typename Code>
typename Code::Sum CrcBlockOnHost(const void* data, uint32_t bytes);

}  // namespace cairn

#endif  // CAIRN_GPU_TESTING_CRC_BLOCK_ON_HOST_H_
