// Makes token ids, and which of them are trained on, of the lines of a fine-tuning corpus, as Megatron-Bridge does.
#ifndef CAIRN_CORPUS_SFT_SAMPLE_ENCODER_H_
#define CAIRN_CORPUS_SFT_SAMPLE_ENCODER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "corpus/preprocess/document_parser.h"
#include "corpus/sft/chat_renderer.h"
#include "corpus/sft/token_places.h"
#include "corpus/tokenizer/tokenizer.h"

namespace cairn::corpus {

struct Sample {
  std::vector<uint32_t> ids;
  std::vector<bool> trained;  // of each id, whether the model learns to say it
};

// Each worker has one. Not thread-safe.
class SampleEncoder {
 public:
  virtual ~SampleEncoder() = default;
  // Encodes a line, behind which kLinePadding bytes are readable. BAD_JSON_LINE: the message says what is wrong with
  // it, but not which line. The errors of ChatRenderer.
  virtual absl::Status Encode(std::string_view line, Sample& sample) = 0;
};

// A prompt and an answer, each a text under a key, as Megatron-Bridge's tokenize_prompt_completion_example: blanks
// around them are dropped, each is encoded alone, the end of a text follows, and what is too long is cut off, first
// from the end of the prompt. The answer and its end are trained on.
struct PairOptions {
  std::string prompt_key = "input", answer_key = "output";
  std::string separator = " ";          // before the answer
  std::optional<uint32_t> end_of_text;  // the id
  uint32_t most_tokens = 0;             // of a sample
  std::vector<uint32_t> never_trained;
};
std::unique_ptr<SampleEncoder> NewPairEncoder(const PairOptions& options, const Tokenizer& tokenizer);

// A conversation, which the chat template renders. The tokens that have a part of an answer are trained on, as
// transformers' assistant_masks say. `places` and `tokenizer` must outlive it.
std::unique_ptr<SampleEncoder> NewChatEncoder(std::unique_ptr<ChatRenderer> renderer, const TokenPlaces& places,
                                              std::vector<uint32_t> never_trained, const Tokenizer& tokenizer);

// The tokens that Megatron-Bridge never trains on, where a tokenizer has added them (its token_utils.py).
std::vector<uint32_t> NeverTrained(const TokenPlaces& places);

// Marks the tokens that overlap an answer. Both lists ascend.
void TrainOn(const std::vector<ByteRange>& answers, const std::vector<ByteRange>& places, std::vector<bool>& trained);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_SFT_SAMPLE_ENCODER_H_
