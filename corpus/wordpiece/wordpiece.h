// Encodes text with BERT's WordPiece, exactly as the trainers' tokenizers do.
//
// The dialect `kFast` is that of Megatron-LM's BertWordPieceCase and BertWordPieceLowerCase today: it has Hugging
// Face's normalizer and pre-tokenizer, words of at most 100 characters, and special tokens that are matched in the raw
// text. `kLegacy` is the original BERT and Megatron-LM before 2026: it has words of at most 200 characters and no
// special tokens. A word is cut greedily into the longest pieces of the vocabulary (Schuster and Nakajima 2012; Wu et
// al. 2016). A word that cannot be cut, or is too long, becomes one [UNK].
//
// It is fast because most text is never decoded. It searches 64 bytes at a time for the blanks and punctuation marks of
// ASCII, which end a word under every rule, and looks up the bytes between them whole in a cache of words. Only words
// that are not in the cache are decoded, normalized and cut.
#ifndef CAIRN_CORPUS_WORDPIECE_WORDPIECE_H_
#define CAIRN_CORPUS_WORDPIECE_WORDPIECE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "corpus/tokenizer/tokenizer.h"
#include "corpus/wordpiece/piece_trie.h"
#include "corpus/wordpiece/wordpiece_vocab.h"

namespace cairn::corpus {

struct WordPieceOptions {
  BertDialect dialect = BertDialect::kFast;
  bool lower_case = false;
  uint32_t extra_ids = 0;  // <extra_id_i> tokens behind the vocabulary, 100 for BertWordPieceCase
};

class WordPieceTokenizer final : public Tokenizer {
 public:
  // `name` stands in errors. See ParseWordPieceVocab.
  static absl::StatusOr<std::unique_ptr<WordPieceTokenizer>> FromVocabText(std::string_view text, std::string_view name,
                                                                           const WordPieceOptions& options);
  // INPUT_UNREADABLE: the file cannot be read.
  static absl::StatusOr<std::unique_ptr<WordPieceTokenizer>> FromVocabFile(const std::string& path,
                                                                           const WordPieceOptions& options);

  std::unique_ptr<Encoder> NewEncoder() const override;
  // Counts tokens as the trainers do. Ids are below it unless lines of the vocabulary repeat: see id_limit().
  uint32_t vocab_size() const override { return vocab_.size; }
  uint32_t id_limit() const { return vocab_.id_limit; }
  std::optional<uint32_t> IdOf(std::string_view token) const override { return vocab_.IdOf(token); }

  const WordPieceOptions& options() const { return options_; }
  const WordPieceVocab& vocab() const { return vocab_; }

  // Appends the pieces of one normalized word that has `scalars` characters.
  void CutWord(std::string_view word, size_t scalars, std::vector<uint32_t>& ids) const;

 private:
  friend class WordPieceEncoder;
  WordPieceTokenizer(WordPieceVocab vocab, const WordPieceOptions& options);

  WordPieceVocab vocab_;
  WordPieceOptions options_;
  size_t max_scalars_;
  PieceTrie first_, later_;  // pieces that begin a word; those after ##
  std::array<uint32_t, 128> punct_ids_{};
  std::array<bool, 128> begins_special_{};
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_WORDPIECE_WORDPIECE_H_
