// Computes the remainders of CRC-64/XZ of blocks of arrays on a GPU.
#include "gpu/copy/sum_blocks.cuh"

extern "C" __global__ void __launch_bounds__(cairn::crc_lanes::kThreads)
    cairn_crc64(const cairn::crc_lanes::Range* ranges, cairn::crc_lanes::Word count, cairn::crc_lanes::Long blocks,
                cairn::crc_lanes::Crc64::Sum* sums) {
  cairn::crc_lanes::SumBlocks<cairn::crc_lanes::Crc64>(ranges, count, blocks, sums);
}
