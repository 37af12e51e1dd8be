// Finds characters with which a word of bytes can begin to be merged, instead of with their bytes.
//
// A character beyond ASCII has two to four bytes. If merges make one token of them whatever stands around it, a word
// may begin with that token: words have a third of the symbols then, and fewer merges are left. That is so where
// 1. the bytes alone become the token, by merges up to the rank M;
// 2. each merge of the token itself has a greater rank than M, so that none comes before;
// 3. so has each merge of a part of the character with what stands before or behind it.
// Then the lowest rank in a word is never that of a merge that crosses the border of such a character while it is in
// parts, and all other merges are the same, in the same order, as if it had been whole from the begin. What the third
// rule forbids depends on the neighbours, and is kept as the bytes that must not stand before or behind the character.
#ifndef CAIRN_CORPUS_BPE_WHOLE_CHARACTERS_H_
#define CAIRN_CORPUS_BPE_WHOLE_CHARACTERS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/strings/string_view.h"
#include "corpus/bpe/merge_table.h"

namespace cairn::corpus {

// Immutable after it is made, then thread-safe.
class WholeCharacters {
 public:
  WholeCharacters() = default;  // has none
  // `bytes_of` has the bytes of each id; of an id with none they are empty. `table` has the same `merges`, and each
  // byte is the token `byte_ids` says. It has no characters if the result of some merge has not the bytes of its parts.
  WholeCharacters(std::span<const absl::string_view> bytes_of, std::span<const MergeTable::Merge> merges,
                  const MergeTable& table, std::span<const uint32_t, 256> byte_ids);

  bool empty() const { return entries_.empty(); }
  // Appends the symbols with which a word begins: characters where it can, else bytes. The word may be any bytes.
  void Start(std::string_view word, std::vector<uint32_t>& ids) const;

 private:
  using Bytes = std::array<uint64_t, 4>;  // a set

  struct Entry {
    uint32_t id = kNone;
    uint16_t not_after = 0, not_before = 0;  // of sets_
  };
  static constexpr uint32_t kNone = ~uint32_t{0};
  // Behind these code points few texts have any, so their characters begin as bytes.
  static constexpr size_t kCodePoints = 0x20000;

  // Returns what is known of the character at p, of which `left` bytes are there, and its length; null for what is
  // none.
  const Entry* EntryOf(const uint8_t* p, size_t left, size_t& length) const;
  static bool Has(const Bytes& bytes, uint8_t byte) { return bytes[byte / 64] >> byte % 64 & 1; }

  std::vector<Entry> entries_;  // by code point
  std::vector<Bytes> sets_;
  std::array<uint32_t, 256> byte_ids_ = {};
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_BPE_WHOLE_CHARACTERS_H_
