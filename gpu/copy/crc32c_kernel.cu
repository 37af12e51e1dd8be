// Computes raw CRC32Cs of blocks of arrays on a GPU.
#include "gpu/copy/sum_blocks.cuh"

extern "C" __global__ void __launch_bounds__(cairn::crc_lanes::kThreads)
    cairn_crc32c(const cairn::crc_lanes::Range* ranges, cairn::crc_lanes::Word count, cairn::crc_lanes::Long blocks,
                 cairn::crc_lanes::Crc32c::Sum* sums) {
  cairn::crc_lanes::SumBlocks<cairn::crc_lanes::Crc32c>(ranges, count, blocks, sums);
}
