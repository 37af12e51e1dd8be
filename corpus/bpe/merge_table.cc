#include "corpus/bpe/merge_table.h"

#include <bit>

namespace cairn::corpus {
namespace {

// The hashes of so many lines in a row have different tags.
constexpr size_t kLinesPerTag = 4;

int BitsOf(uint64_t number) { return static_cast<int>(std::bit_width(number)); }

}  // namespace

MergeTable::MergeTable(const std::vector<Merge>& merges, uint32_t most_id) {
  // Lines that are half full on average: few have more pairs than slots.
  const size_t least = merges.size() / 4 + 1;
  for (size_t lines = least; lines <= 8 * least; lines *= 2) {
    if (Fill(merges, most_id, lines)) return;
  }
  lines_.clear();  // only of merges that are made up so that their hashes meet
}

bool MergeTable::Fill(const std::vector<Merge>& merges, uint32_t most_id, size_t lines) {
  uint32_t most_rank = 0;
  for (const Merge& merge : merges) most_rank = std::max(most_rank, merge.rank);
  // The number of all ones is no id and no rank.
  id_bits_ = BitsOf(uint64_t{most_id} + 1);
  value_bits_ = id_bits_ + BitsOf(uint64_t{most_rank} + 1);
  const int line_bits = BitsOf(lines) - 1;  // rounded down
  const int tag_bits = std::max(2 * id_bits_ - line_bits, 0) + BitsOf(kLinesPerTag) - 1;
  lines_.clear();
  if (tag_bits + value_bits_ > 63 || value_bits_ > kValueBits || 2 * id_bits_ + line_bits + 1 > 64) return true;
  pair_mask_ = (uint64_t{1} << 2 * id_bits_) - 1;
  tag_mask_ = (uint64_t{1} << tag_bits) - 1;
  limit_ = (uint64_t{most_rank} + 1) << id_bits_;
  lines_.resize(lines);
  for (const Merge& merge : merges) {
    const Place place = AskFor(merge.left, merge.right);
    const uint64_t slot = place.tag | uint64_t{merge.rank} << id_bits_ | merge.result;
    size_t at = place.line;
    for (size_t tried = 1; !Put(lines_[at], slot); ++tried) {
      if (tried + 1 == kLinesPerTag) return false;
      at = at + 1 == lines ? 0 : at + 1;
    }
  }
  return true;
}

bool MergeTable::Put(Line& line, uint64_t slot) {
  for (uint64_t& place : line.slots) {
    if (place != kFree) continue;
    place = slot;
    return true;
  }
  line.slots[0] |= kOverflow;
  return false;
}

}  // namespace cairn::corpus
