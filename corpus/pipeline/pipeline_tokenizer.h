// A tokenizer of any kind that a tokenizer.json can describe: added tokens, a normalizer, a pre-tokenizer and a model.
#ifndef CAIRN_CORPUS_PIPELINE_PIPELINE_TOKENIZER_H_
#define CAIRN_CORPUS_PIPELINE_PIPELINE_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "corpus/bpe/added_tokens.h"
#include "corpus/pipeline/pieces.h"
#include "corpus/pipeline/word_model.h"
#include "corpus/tokenizer/tokenizer.h"

namespace cairn::corpus {

class PipelineTokenizer final : public Tokenizer {
 public:
  struct Parts {
    std::vector<AddedToken> added;
    std::vector<Step> normalizer;
    std::vector<Step> pre_tokenizer;
    std::unique_ptr<WordModel> model;
    uint32_t vocab_size = 0;             // larger than every id
    std::optional<uint32_t> joins = {};  // of several of this id in a row, one stays
    bool normalizer_repairs = false;     // the normalizer takes any bytes, and makes UTF-8 of them
  };

  // Normalizes the added tokens that are matched in normalized text. Fails as a step does.
  static absl::StatusOr<std::unique_ptr<PipelineTokenizer>> Create(Parts parts);

  // Encodes as Hugging Face tokenizers does (add_special_tokens=False). What is not UTF-8 is read as U+FFFD, as
  // Python's errors="replace" does, unless the normalizer repairs it. INVALID_ARGUMENT (BAD_REQUEST): the text is
  // larger than 1 GiB. Else as the steps and the model fail.
  std::unique_ptr<Encoder> NewEncoder() const override;
  uint32_t vocab_size() const override { return parts_.vocab_size; }
  std::optional<uint32_t> IdOf(std::string_view token) const override;

 private:
  friend class PipelineEncoder;
  explicit PipelineTokenizer(Parts parts) : parts_(std::move(parts)) {}

  Parts parts_;
  AddedTokens first_;   // matched before the normalizer
  AddedTokens second_;  // matched behind it
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_PIPELINE_PIPELINE_TOKENIZER_H_
