// Reads SentencePiece's .model files.
#ifndef CAIRN_CORPUS_PIPELINE_SENTENCEPIECE_H_
#define CAIRN_CORPUS_PIPELINE_SENTENCEPIECE_H_

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "corpus/tokenizer/tokenizer.h"

namespace cairn::corpus {

// Builds the tokenizer of a .model, a sentencepiece.ModelProto. It encodes as SentencePiece's EncodeAsIds: control
// symbols in the text are text, and none are added. `name` is the file's, for messages. INVALID_ARGUMENT
// (BAD_TOKENIZER): it is damaged or contradicts itself. UNIMPLEMENTED (UNSUPPORTED): the model's type is WORD or CHAR,
// a BPE model has unused pieces, or a Unigram model has user-defined ones.
absl::StatusOr<std::unique_ptr<Tokenizer>> ParseSentencePiece(std::string_view content, const std::string& name);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_PIPELINE_SENTENCEPIECE_H_
