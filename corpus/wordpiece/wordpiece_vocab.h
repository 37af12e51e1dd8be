// Holds a WordPiece vocabulary: there is one piece per line, whose number is its id, and special tokens come behind
// them.
#ifndef CAIRN_CORPUS_WORDPIECE_WORDPIECE_VOCAB_H_
#define CAIRN_CORPUS_WORDPIECE_WORDPIECE_VOCAB_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "corpus/wordpiece/bert_chars.h"

namespace cairn::corpus {

struct WordPieceVocab {
  // The pieces as the file has them. Of equal lines, the last one's number counts. Blanks at the end of a line (legacy:
  // at both ends) do not belong to it.
  absl::flat_hash_map<std::string, uint32_t> pieces;
  // The tokens that are matched in the raw text (fast dialect): those of the file, and those that are added behind it.
  std::vector<std::pair<std::string, uint32_t>> specials;
  uint32_t unk = 0;
  // Counts the different tokens as the trainers do: distinct lines plus added tokens.
  uint32_t size = 0;
  // One more than the greatest id; greater than `size` where lines repeat.
  uint32_t id_limit = 0;

  // Finds an id by text. Special tokens come first.
  std::optional<uint32_t> IdOf(std::string_view token) const;
};

// Reads the text of a vocab.txt. A file must have a line [UNK]. In the fast dialect, [UNK] [SEP] [PAD] [CLS] [MASK] are
// special; the last four are added in this order where the file lacks them, and <extra_id_0> .. <extra_id_{extra_ids -
// 1}> come behind them. In the legacy dialect [BOS] and [EOS] are added where the file lacks them, and nothing is
// matched in the text. INVALID_ARGUMENT (BAD_TOKENIZER): the file is not UTF-8, has no line or no [UNK], or has more
// than 2^31 ids; it names `name` and, if a line is wrong, the line.
absl::StatusOr<WordPieceVocab> ParseWordPieceVocab(std::string_view text, std::string_view name, BertDialect dialect,
                                                   uint32_t extra_ids);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_WORDPIECE_WORDPIECE_VOCAB_H_
