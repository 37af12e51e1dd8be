// Computes raw CRC32Cs of blocks of arrays on a GPU. tools/gpu_kernel makes crc32c_kernel.ptx of it, which the driver
// compiles for the GPU that is there.
#include "common/gpu/crc32c_lanes.h"

namespace cairn::crc32c {

// `ranges` are ascending by first_block, and each has bytes. sums[block] gets the raw CRC of the block.
extern "C" __global__ void __launch_bounds__(kThreads)
    cairn_crc32c(const Range* ranges, Word count, Long blocks, Word* sums) {
  // Each lane has a copy of the table in a memory bank of its own, so that no two lanes wait for one bank.
  __shared__ Word table[kTableEntries * kLanes];
  for (Word entry = threadIdx.x; entry < kTableEntries; entry += kThreads) {
    const Word value = TableEntry(entry);
    for (Word lane = 0; lane < kLanes; ++lane) table[entry * kLanes + (lane + entry) % kLanes] = value;
  }
  __syncthreads();
  const Word lane = threadIdx.x % kLanes;
  const Long block = static_cast<Long>(blockIdx.x) * kWarps + threadIdx.x / kLanes;
  if (block >= blocks) return;
  const Range range = ranges[RangeOfBlock(ranges, count, block)];
  const Long offset = (block - range.first_block) * kBlockBytes;
  const Long left = range.bytes - offset;
  const Word bytes = left < kBlockBytes ? static_cast<Word>(left) : kBlockBytes;
  const auto* data = reinterpret_cast<const unsigned char*>(range.address + offset);
  const auto look_up = [&](Word entry) { return table[entry * kLanes + lane]; };
  const auto load_four = [&](Word at) {
    const uint4 words = *reinterpret_cast<const uint4*>(data + at);
    return Four{{words.x, words.y, words.z, words.w}};
  };
  const auto load_bytes = [&](Word at) {
    return Four{{LoadWord(data + at), LoadWord(data + at + 4), LoadWord(data + at + 8), LoadWord(data + at + 12)}};
  };
  const bool aligned = reinterpret_cast<Long>(data) % kLaneBytes == 0;
  Word sum = aligned ? LaneSum(data, bytes, lane, load_four, look_up) : LaneSum(data, bytes, lane, load_bytes, look_up);
  for (Word step = kLanes / 2; step > 0; step /= 2) sum ^= __shfl_xor_sync(0xffffffff, sum, static_cast<int>(step));
  if (lane == 0) sums[block] = sum;
}

}  // namespace cairn::crc32c
