// Computes raw CRC32Cs of blocks of arrays on a GPU. gpu/copy/make_ptx compiles it to crc32c_kernel.ptx, which the
// driver compiles for its GPU.
#include "gpu/copy/crc32c_lanes.h"

namespace cairn::crc32c {

// Joins the sums of lanes with this distance. Both lanes get the result.
template <Word kDistance>
__device__ Word JoinAcross(Word sum, Word lane) {
  const Word other = __shfl_xor_sync(0xffffffff, sum, static_cast<int>(kDistance));
  return (lane & kDistance) == 0 ? Join<kDistance>(sum, other) : Join<kDistance>(other, sum);
}

// `ranges` ascend by first_block, and none is empty. sums[block] gets the raw CRC of the block.
extern "C" __global__ void __launch_bounds__(kThreads)
    cairn_crc32c(const Range* ranges, Word count, Long blocks, Word* sums) {
  // Each lane has a copy of the table in its own memory bank, so that no two lanes wait for the same bank.
  constexpr Word kEntryBytes = kLanes * sizeof(Word);
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
  // Shifts the part's value to the offset of its table entry: one shift, and one instruction for the rest.
  const Word lane_offset = lane * sizeof(Word);
  const auto look_up = [&](Word word, Word part) {
    constexpr Word kEntryShift = 7;
    static_assert(1 << kEntryShift == kEntryBytes);
    const Word mask = ((Word{1} << PartBits(part)) - 1) << kEntryShift;
    const Word shift = PartShift(part);
    const Word shifted = shift < kEntryShift ? word << (kEntryShift - shift) : word >> (shift - kEntryShift);
    const auto* first = reinterpret_cast<const unsigned char*>(table) + PartEntry(part) * kEntryBytes;
    return *reinterpret_cast<const Word*>(first + ((shifted & mask) | lane_offset));
  };
  // A streaming load (__ldcs): the data is read once and should not evict the trainer's data from the cache.
  const auto load_four = [&](Word at) {
    const uint4 words = __ldcs(reinterpret_cast<const uint4*>(data + at));
    return Four{{words.x, words.y, words.z, words.w}};
  };
  const auto load_bytes = [&](Word at) {
    return Four{{LoadWord(data + at), LoadWord(data + at + 4), LoadWord(data + at + 8), LoadWord(data + at + 12)}};
  };
  const Word rows = bytes / kRowBytes, tail = bytes % kRowBytes;
  const bool aligned = reinterpret_cast<Long>(data) % kLaneBytes == 0;
  Word sum = JoinWords(aligned ? LaneRows(rows, lane, load_four, look_up) : LaneRows(rows, lane, load_bytes, look_up));
  sum = JoinAcross<1>(sum, lane);
  sum = JoinAcross<2>(sum, lane);
  sum = JoinAcross<4>(sum, lane);
  sum = JoinAcross<8>(sum, lane);
  sum = JoinAcross<16>(sum, lane);
  Word last = LaneTail(data + rows * kRowBytes, tail, lane);
  for (Word step = kLanes / 2; step > 0; step /= 2) last ^= __shfl_xor_sync(0xffffffff, last, static_cast<int>(step));
  if (lane == 0) sums[block] = ShiftRows(sum, tail) ^ last;
}

}  // namespace cairn::crc32c
