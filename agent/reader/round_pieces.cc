#include "agent/reader/round_pieces.h"

#include <algorithm>
#include <utility>

#include "agent/reader/round_chunks.h"

namespace cairn {
namespace {

// Returns this rank's copies out of its own round in the order of its buffer; nothing if one is more than a move of
// bytes.
std::optional<std::vector<const v1::Copy*>> PlainCopies(const v1::ReadPlan& plan, uint32_t round) {
  std::vector<const v1::Copy*> copies;
  const auto before = [](const v1::Copy& copy, std::pair<uint32_t, uint32_t> place) {
    return std::pair(copy.round(), copy.source_rank()) < place;
  };
  const auto first =
      std::lower_bound(plan.copies().begin(), plan.copies().end(), std::pair(round, plan.rank()), before);
  for (auto at = first; at != plan.copies().end(); ++at) {
    const v1::Copy& copy = *at;
    if (copy.source_rank() != plan.rank() || copy.round() != round) break;
    if (copy.element_bytes() == 0) continue;
    if (copy.extents_size() > 0 || copy.casts_size() > 0) return std::nullopt;
    copies.push_back(&copy);
  }
  std::sort(copies.begin(), copies.end(),
            [](const v1::Copy* a, const v1::Copy* b) { return a->source_offset() < b->source_offset(); });
  return copies;
}

// Adds the pieces of [at, at + bytes) of a file. Returns false if a byte has no checksum.
bool AddPieces(const v1::ReadFile& file, RoundPiece first, uint64_t bytes, std::vector<RoundPiece>& pieces) {
  for (const ReadFragment& fragment : CutAtChecksums(file, first.offset, bytes)) {
    if (file.item_offsets(static_cast<int>(fragment.item)) + fragment.begin != first.offset) return false;
    first.fragment = fragment;
    pieces.push_back(first);
    first.offset += fragment.bytes;
    first.target_offset += fragment.bytes;
    bytes -= fragment.bytes;
  }
  return bytes == 0;
}

}  // namespace

std::optional<std::vector<RoundPiece>> CutIntoPieces(const v1::ReadPlan& plan, uint32_t number) {
  const v1::ReadRound& round = plan.rounds(static_cast<int>(number));
  if (round.consumers_size() != 1 || round.consumers(0) != plan.rank()) return std::nullopt;
  const std::optional<std::vector<const v1::Copy*>> copies = PlainCopies(plan, number);
  if (!copies.has_value()) return std::nullopt;
  std::vector<RoundPiece> pieces;
  size_t current = 0;
  uint64_t used = 0;  // bytes of the current copy that have pieces
  for (const size_t i : ReadsInBufferOrder(round)) {
    const v1::Read& read = round.reads(static_cast<int>(i));
    for (uint64_t done = 0; done < read.bytes();) {
      if (current == copies->size()) return std::nullopt;
      const v1::Copy& copy = *(*copies)[current];
      if (copy.source_offset() + used != read.buffer_offset() + done) return std::nullopt;
      const uint64_t bytes = std::min(read.bytes() - done, copy.element_bytes() - used);
      const RoundPiece first = {.read = i,
                                .file = read.file(),
                                .offset = read.file_offset() + done,
                                .target = copy.target(),
                                .target_offset = copy.target_offset() + used,
                                .fragment = {}};
      if (!AddPieces(plan.files(static_cast<int>(read.file())), first, bytes, pieces)) return std::nullopt;
      done += bytes;
      used += bytes;
      if (used < copy.element_bytes()) continue;
      ++current;
      used = 0;
    }
  }
  if (current < copies->size()) return std::nullopt;
  return pieces;
}

}  // namespace cairn
