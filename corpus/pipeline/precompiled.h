// The normalizer "Precompiled": replacements of characters that SentencePiece compiled into a trie.
#ifndef CAIRN_CORPUS_PIPELINE_PRECOMPILED_H_
#define CAIRN_CORPUS_PIPELINE_PRECOMPILED_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace cairn::corpus {

// SentencePiece's precompiled_charsmap: the number of bytes of a double-array trie (u32, little-endian), the trie, and
// the replacements, each with a zero byte behind it. Immutable; thread-safe.
class CharacterMap {
 public:
  // INVALID_ARGUMENT (BAD_TOKENIZER): the trie is cut off, or a replacement is not UTF-8 or is longer than 4 KiB. An
  // empty map replaces nothing.
  static absl::StatusOr<CharacterMap> Parse(std::string_view bytes);

  struct Replacement {
    size_t length;  // of what is replaced, in bytes
    std::string_view text;
  };
  // Returns the replacement of the shortest, or the longest, beginning of `text` that has one.
  std::optional<Replacement> Shortest(std::string_view text) const { return Find(text, /*longest=*/false); }
  std::optional<Replacement> Longest(std::string_view text) const { return Find(text, /*longest=*/true); }

 private:
  std::optional<Replacement> Find(std::string_view text, bool longest) const;

  std::vector<uint32_t> units_;
  std::string texts_;
};

// Returns the text as Hugging Face tokenizers normalizes it: it replaces each grapheme of less than six bytes that has
// a replacement, and else each character. It stops when the result has more than `limit` bytes. `text` must be
// valid UTF-8.
std::string ReplaceGraphemes(const CharacterMap& map, std::string_view text, size_t limit);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_PIPELINE_PRECOMPILED_H_
