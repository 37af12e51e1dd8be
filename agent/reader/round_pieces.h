// Cuts a round of a load into pieces of files that its trainer can read into its arrays itself.
#ifndef CAIRN_AGENT_READER_ROUND_PIECES_H_
#define CAIRN_AGENT_READER_ROUND_PIECES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "agent/reader/read_fragments.h"
#include "cairn/v1/plan.pb.h"

namespace cairn {

// A part of one read, which goes to one target as it is.
struct RoundPiece {
  size_t read = 0;    // its number in the round
  uint32_t file = 0;  // as in Read
  uint64_t offset = 0;
  uint32_t target = 0;  // as in Copy
  uint64_t target_offset = 0;
  ReadFragment fragment;  // its length and its place in an item; without its checksum

  uint64_t bytes() const { return fragment.bytes; }
};

// Returns the pieces of a round, in the order of its buffer. Returns nothing if the round cannot be taken in pieces: a
// rank other than the reader takes bytes of it, a byte goes to several places or to none, elements change their dtype
// or do not stay beside each other, or a file has no checksums. The plan must have passed RoundReader::CheckPlan.
std::optional<std::vector<RoundPiece>> CutIntoPieces(const v1::ReadPlan& plan, uint32_t round);

}  // namespace cairn

#endif  // CAIRN_AGENT_READER_ROUND_PIECES_H_
