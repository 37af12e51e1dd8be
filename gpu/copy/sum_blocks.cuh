// What the kernels of both CRCs do. A kernel's file defines its entry and nothing else. gpu/copy/make_ptx compiles it
// to a file `.ptx`, which the driver compiles for its GPU.
#ifndef CAIRN_GPU_COPY_SUM_BLOCKS_CUH_
#define CAIRN_GPU_COPY_SUM_BLOCKS_CUH_

#include "gpu/copy/crc_lanes.h"

namespace cairn::crc_lanes {

// Joins the sums of lanes with this distance. Both lanes get the result.
template <typename Code, Word kDistance>
__device__ typename Code::Sum JoinAcross(typename Code::Sum sum, Word lane) {
  const typename Code::Sum other = __shfl_xor_sync(0xffffffff, sum, static_cast<int>(kDistance));
  return (lane & kDistance) == 0 ? Lanes<Code>::template Join<kDistance>(sum, other)
                                 : Lanes<Code>::template Join<kDistance>(other, sum);
}

// `ranges` ascend by first_block, and none is empty. sums[block] gets the raw CRC of the block. All threads of a block
// of kThreads call it.
template <typename Code>
__device__ void SumBlocks(const Range* ranges, Word count, Long blocks, typename Code::Sum* sums) {
  using Arithmetic = Lanes<Code>;
  using Sum = typename Code::Sum;
  // Each lane has a copy of the table in its own memory bank, so that no two lanes wait for the same bank.
  constexpr Word kCopies = Code::kTableCopies;
  constexpr Word kEntryBytes = kCopies * sizeof(Sum);
  __shared__ Sum table[kTableEntries * kCopies];
  for (Word entry = threadIdx.x; entry < kTableEntries; entry += kThreads) {
    const Sum value = Arithmetic::TableEntry(entry);
    for (Word copy = 0; copy < kCopies; ++copy) table[entry * kCopies + (copy + entry) % kCopies] = value;
  }
  __syncthreads();
  const Word lane = threadIdx.x % kLanes;
  const Long block = static_cast<Long>(blockIdx.x) * kWarps + threadIdx.x / kLanes;
  if (block >= blocks) return;
  const Range range = ranges[RangeOfBlock(ranges, count, block)];
  const Long offset = (block - range.first_block) * range.block_bytes;
  const Long left = range.bytes - offset;
  const Word bytes = static_cast<Word>(left < range.block_bytes ? left : range.block_bytes);
  const auto* data = reinterpret_cast<const unsigned char*>(range.address + offset);
  // Shifts the part's value to the offset of its table entry: one shift, and one instruction for the rest.
  const Word lane_offset = lane % kCopies * sizeof(Sum);
  const auto look_up = [&](Sum sum, Word part) {
    constexpr Word kEntryShift = 7;
    static_assert(1 << kEntryShift == kEntryBytes);
    const Word mask = ((Word{1} << Code::PartBits(part)) - 1) << kEntryShift;
    const Word shift = Code::PartShift(part);
    const Word shifted =
        static_cast<Word>(shift < kEntryShift ? sum << (kEntryShift - shift) : sum >> (shift - kEntryShift));
    const auto* first = reinterpret_cast<const unsigned char*>(table) + Code::PartEntry(part) * kEntryBytes;
    return *reinterpret_cast<const Sum*>(first + ((shifted & mask) | lane_offset));
  };
  // A streaming load (__ldcs): the data is read once and should not evict the trainer's data from the cache.
  const auto load_piece = [&](Word at) {
    union {
      uint4 loaded;
      typename Arithmetic::Piece piece;
    };
    loaded = __ldcs(reinterpret_cast<const uint4*>(data + at));
    return piece;
  };
  const auto load_bytes = [&](Word at) { return Arithmetic::LoadPiece(data + at); };
  const Word rows = bytes / kRowBytes, tail = bytes % kRowBytes;
  Sum sum = 0;
  if (rows > 0) {
    const bool aligned = reinterpret_cast<Long>(data) % kLaneBytes == 0;
    sum = Arithmetic::JoinWords(aligned ? Arithmetic::LaneRows(rows, lane, load_piece, look_up)
                                        : Arithmetic::LaneRows(rows, lane, load_bytes, look_up));
    sum = JoinAcross<Code, 1>(sum, lane);
    sum = JoinAcross<Code, 2>(sum, lane);
    sum = JoinAcross<Code, 4>(sum, lane);
    sum = JoinAcross<Code, 8>(sum, lane);
    sum = JoinAcross<Code, 16>(sum, lane);
  }
  Sum last = 0;
  if (tail > 0) {
    last = Arithmetic::LaneTail(data + rows * kRowBytes, tail, lane);
    for (Word step = kLanes / 2; step > 0; step /= 2) {
      last ^= __shfl_xor_sync(0xffffffff, last, static_cast<int>(step));
    }
  }
  if (lane == 0) sums[block] = Arithmetic::ShiftRows(sum, tail) ^ last;
}

}  // namespace cairn::crc_lanes

#endif  // CAIRN_GPU_COPY_SUM_BLOCKS_CUH_
