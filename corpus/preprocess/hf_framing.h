// What a Hugging Face tokenizer puts around a text, and which token ends one.
#ifndef CAIRN_CORPUS_PREPROCESS_HF_FRAMING_H_
#define CAIRN_CORPUS_PREPROCESS_HF_FRAMING_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "corpus/preprocess/document_encoder.h"
#include "corpus/tokenizer/tokenizer.h"

namespace cairn::corpus {

// The three files that transformers reads; empty where there is none.
struct HfFiles {
  std::string tokenizer_json, tokenizer_config, special_tokens_map;
};

// From `path`, a directory with a tokenizer.json or the file itself; the other two lie beside it.
// NOT_FOUND (INPUT_UNREADABLE): no tokenizer.json, or unreadable.
absl::StatusOr<HfFiles> ReadHfFiles(const std::string& path);

// Framing as AutoTokenizer's (transformers 5): before and after from the post-processor of tokenizer.json (ByteLevel,
// TemplateProcessing, BertProcessing, RobertaProcessing, or a Sequence of them); add_bos_token and add_eos_token of
// tokenizer_config.json do not count beside a tokenizer.json. end_of_document is the eos_token, else the sep_token,
// else none. INVALID_ARGUMENT (BAD_TOKENIZER), naming `name`: damaged. UNIMPLEMENTED (UNSUPPORTED): another
// post-processor.
absl::StatusOr<Framing> HfFraming(const HfFiles& files, std::string_view name, const Tokenizer& tokenizer);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_PREPROCESS_HF_FRAMING_H_
