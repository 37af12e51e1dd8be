// Cuts a round of a load into what one system call reads.
#ifndef CAIRN_AGENT_READER_ROUND_CHUNKS_H_
#define CAIRN_AGENT_READER_ROUND_CHUNKS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cairn/v1/plan.pb.h"

namespace cairn {

// A part of one read.
struct RoundChunk {
  size_t read = 0;  // its number in the round
  uint64_t file_offset = 0;
  uint64_t bytes = 0;
  uint64_t buffer_offset = 0;
  // A direct read fills whole blocks of the buffer. False: another read has bytes in them.
  bool in_place = true;
};

// Returns the numbers of the round's reads in the order of its buffer.
std::vector<size_t> ReadsInBufferOrder(const v1::ReadRound& round);

// Returns the chunks of all reads, ordered by read and offset. A chunk ends where a block of `chunk_bytes`, a multiple
// of kReadAlignment, would end that begins with its first block, or where the next one is in place and it is not. The
// plan must have passed RoundReader::CheckPlan.
std::vector<RoundChunk> CutIntoChunks(const v1::ReadRound& round, uint64_t chunk_bytes);

}  // namespace cairn

#endif  // CAIRN_AGENT_READER_ROUND_CHUNKS_H_
