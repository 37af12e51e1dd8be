// Loads tokenizers of every kind from the files in which they are published.
#ifndef CAIRN_CORPUS_PIPELINE_LOAD_TOKENIZER_H_
#define CAIRN_CORPUS_PIPELINE_LOAD_TOKENIZER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "corpus/bpe/load_tokenizer.h"
#include "corpus/tokenizer/tokenizer.h"

namespace cairn::corpus {

// Loads what LoadBpeTokenizer loads; each tokenizer.json whose parts are known (normalizer.h, pre_tokenizer.h; the models
// BPE, Unigram, WordLevel and WordPiece); and SentencePiece's *.model (sentencepiece.h), or of a directory without a
// tokenizer.json its tokenizer.model. Fails as LoadBpeTokenizer. UNIMPLEMENTED (UNSUPPORTED): a part is not
// known, or it cuts texts off or fills them up (truncation, padding to a fixed length); the message names it.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(const std::string& path, const BpeLoadOptions& options = {});

// Builds the tokenizer that the content of a tokenizer.json describes, whatever its kind. `name` is the file's.
absl::StatusOr<std::unique_ptr<Tokenizer>> ParsePipeline(const std::string& content, const std::string& name);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_PIPELINE_LOAD_TOKENIZER_H_
