// Loads tokenizers of every kind from the files in which they are published.
#ifndef CAIRN_CORPUS_PIPELINE_LOAD_TOKENIZER_H_
#define CAIRN_CORPUS_PIPELINE_LOAD_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "corpus/bpe/load_tokenizer.h"
#include "corpus/tokenizer/tokenizer.h"

namespace cairn::corpus {

// Loads what LoadBpeTokenizer loads; each tokenizer.json whose parts are known (normalizer.h, pre_tokenizer.h; the
// models BPE, Unigram, WordLevel and WordPiece); and SentencePiece's *.model (sentencepiece.h), or of a directory
// without a tokenizer.json its tokenizer.model. Fails as LoadBpeTokenizer. UNIMPLEMENTED (UNSUPPORTED): a part is not
// known, or it cuts texts off or fills them up (truncation, padding to a fixed length); the message names it.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(const std::string& path, const BpeLoadOptions& options = {});

// Loads the JSON vocabulary of Megatron-LM's TikTokenizer. The ids 0 .. specials - 1 are special tokens: <unk>, <s>,
// </s>, <mask>, <pad>, <cls>, <sep>, <SPECIAL_7> ...; `vocab_size` counts them and so many of the file's first tokens
// as there is room for. `pattern` is "v1" or "v2". NOT_FOUND (INPUT_UNREADABLE): there is no such file.
// INVALID_ARGUMENT (BAD_TOKENIZER): it is damaged, or has too few tokens; (BAD_REQUEST): an option makes no sense.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadMegatronTiktoken(const std::string& path, const std::string& pattern,
                                                                uint32_t vocab_size, uint32_t specials);

// Builds the tokenizer that the content of a tokenizer.json describes, whatever its kind. `name` is the file's.
absl::StatusOr<std::unique_ptr<Tokenizer>> ParsePipeline(const std::string& content, const std::string& name);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_PIPELINE_LOAD_TOKENIZER_H_
