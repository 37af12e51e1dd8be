// Finds what a Hugging Face tokenizer puts around a text, and which token ends a text.
#ifndef CAIRN_CORPUS_PREPROCESS_HF_FRAMING_H_
#define CAIRN_CORPUS_PREPROCESS_HF_FRAMING_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "corpus/preprocess/document_encoder.h"
#include "corpus/tokenizer/tokenizer.h"

namespace cairn::corpus {

// The three files that transformers reads; a missing one is empty.
struct HfFiles {
  std::string tokenizer_json, tokenizer_config, special_tokens_map;
};

// Reads the files of `path`, a directory with a tokenizer.json or that file itself; the other two stand beside it.
// NOT_FOUND (INPUT_UNREADABLE): there is no tokenizer.json, or it cannot be read.
absl::StatusOr<HfFiles> ReadHfFiles(const std::string& path);

// Returns the framing that AutoTokenizer (transformers 5) uses. The ids before and after a text are taken from the
// post-processor of tokenizer.json (ByteLevel, TemplateProcessing, BertProcessing, RobertaProcessing, or a Sequence of
// them); add_bos_token and add_eos_token of tokenizer_config.json have no effect beside a tokenizer.json.
// end_of_document is the eos_token, else the sep_token, else none. INVALID_ARGUMENT (BAD_TOKENIZER): the files are
// damaged; it has `name`. UNIMPLEMENTED (UNSUPPORTED): it is another post-processor.
absl::StatusOr<Framing> HfFraming(const HfFiles& files, std::string_view name, const Tokenizer& tokenizer);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_PREPROCESS_HF_FRAMING_H_
