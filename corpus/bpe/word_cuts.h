// Finds the places at which a word can be cut, because no merge joins what stands on both sides.
#ifndef CAIRN_CORPUS_BPE_WORD_CUTS_H_
#define CAIRN_CORPUS_BPE_WORD_CUTS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/strings/string_view.h"
#include "corpus/bpe/merge_table.h"

namespace cairn::corpus {

// Immutable after it is made, then thread-safe.
class WordCuts {
 public:
  // What words are merged from.
  enum class Symbols { kBytes, kCharacters };

  WordCuts() = default;  // knows no place
  // `bytes_of` has the bytes of each id, which must be those of the text wherever the symbol stands. It knows no place
  // if some part of a merge has no bytes.
  WordCuts(std::span<const absl::string_view> bytes_of, std::span<const MergeTable::Merge> merges, Symbols symbols);

  // Finds a piece of `word` from `from` on that no merge can join with what follows, and returns its end: both sides
  // can then be encoded on their own. Returns the end of the word if it knows no such place.
  //
  // In words of bytes, it looks only at places between characters beyond ASCII, that is, in scripts without blanks,
  // whose "words" are whole sentences. In words of characters it looks at each place but those inside of what are words
  // elsewhere: between letters or numbers of ASCII, and before characters of two bytes.
  size_t PieceEnd(std::string_view word, size_t from) const;

 private:
  bool CanJoin(const uint8_t* place) const;

  // Whether words may be cut between two bytes, by left << 8 | right. Empty if they may not be cut at all.
  enum class Cut : uint8_t { kNever, kAlways, kAsk };
  std::vector<Cut> cuts_;
  // For kAsk: one bit for each hash of up to three bytes on either side of a place where a merge joins two tokens, and
  // the combinations of lengths that occur.
  std::vector<uint64_t> joints_;
  uint32_t shapes_ = 0;
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_BPE_WORD_CUTS_H_
