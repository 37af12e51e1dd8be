// A WordPiece vocabulary: one piece per line, the line's number its id, and the special tokens that come after it.
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
  // As the file has it. Equal lines: the last one's number; blanks at the end of a line (legacy: at both ends) are not
  // part of it.
  absl::flat_hash_map<std::string, uint32_t> pieces;
  // Tokens that are matched in the raw text (fast dialect), those of the file and those added behind it.
  std::vector<std::pair<std::string, uint32_t>> specials;
  uint32_t unk = 0;
  // How many different tokens there are, as the trainers count: distinct lines plus added tokens.
  uint32_t size = 0;
  // One more than the greatest id; greater than `size` where lines repeat.
  uint32_t id_limit = 0;

  // By text, special tokens first.
  std::optional<uint32_t> IdOf(std::string_view token) const;
};

// Reads the text of a vocab.txt. In the fast dialect [UNK] [SEP] [PAD] [CLS] [MASK] are special, and added in this
// order where the file lacks them, then <extra_id_0> .. <extra_id_{extra_ids - 1}>. In the legacy dialect [BOS] and
// [EOS] are added and nothing is matched in the text. INVALID_ARGUMENT (BAD_TOKENIZER), naming `name` and the line: not
// UTF-8, no line, no [UNK], more than 2^31 ids.
absl::StatusOr<WordPieceVocab> ParseWordPieceVocab(std::string_view text, std::string_view name, BertDialect dialect,
                                                   uint32_t extra_ids);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_WORDPIECE_WORDPIECE_VOCAB_H_
