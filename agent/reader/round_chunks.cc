#include "agent/reader/round_chunks.h"

#include <algorithm>

#include "store/storage/stored_file.h"

namespace cairn {
namespace {

uint64_t Down(uint64_t value) { return value / kReadAlignment * kReadAlignment; }
uint64_t Up(uint64_t value) { return Down(value + kReadAlignment - 1); }

// Whether a read shares the first or the last block of its buffer with another one.
struct Shared {
  bool head = false, tail = false;
};

std::vector<Shared> FindShared(const v1::ReadRound& round) {
  std::vector<Shared> shared(static_cast<size_t>(round.reads_size()));
  std::vector<size_t> order = ReadsInBufferOrder(round);
  // One of no bytes would stand between two that share a block.
  std::erase_if(order, [&](size_t i) { return round.reads(static_cast<int>(i)).bytes() == 0; });
  for (size_t k = 1; k < order.size(); ++k) {
    const v1::Read& before = round.reads(static_cast<int>(order[k - 1]));
    const v1::Read& after = round.reads(static_cast<int>(order[k]));
    if (Up(before.buffer_offset() + before.bytes()) > Down(after.buffer_offset())) {
      shared[order[k - 1]].tail = shared[order[k]].head = true;
    }
  }
  return shared;
}

}  // namespace

std::vector<size_t> ReadsInBufferOrder(const v1::ReadRound& round) {
  std::vector<size_t> order(static_cast<size_t>(round.reads_size()));
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return round.reads(static_cast<int>(a)).buffer_offset() < round.reads(static_cast<int>(b)).buffer_offset();
  });
  return order;
}

std::vector<RoundChunk> CutIntoChunks(const v1::ReadRound& round, uint64_t chunk_bytes) {
  const std::vector<Shared> shared = FindShared(round);
  std::vector<RoundChunk> chunks;
  for (size_t i = 0; i < shared.size(); ++i) {
    const v1::Read& read = round.reads(static_cast<int>(i));
    const uint64_t begin = read.file_offset(), end = begin + read.bytes();
    for (uint64_t at = begin; at < end;) {
      uint64_t until = std::min(end, Down(at) + chunk_bytes);
      bool in_place = true;
      if (at == begin && shared[i].head && at % kReadAlignment != 0) {
        until = std::min(end, Up(at));
        in_place = false;
      } else if (until == end && shared[i].tail && end % kReadAlignment != 0) {
        in_place = Down(end) > at;
        until = in_place ? Down(end) : end;
      }
      chunks.push_back({i, at, until - at, read.buffer_offset() + (at - begin), in_place});
      at = until;
    }
  }
  return chunks;
}

}  // namespace cairn
