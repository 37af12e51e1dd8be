// Byte-level BPE tokenizers from the files in which they are published.
#ifndef CAIRN_CORPUS_BPE_LOAD_TOKENIZER_H_
#define CAIRN_CORPUS_BPE_LOAD_TOKENIZER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "corpus/bpe/vocabulary.h"
#include "corpus/tokenizer/tokenizer.h"

namespace cairn::corpus {

// What a file does not say itself.
struct BpeLoadOptions {
  // The pre-tokenizer of a tiktoken file or a vocab.json + merges.txt pair: "gpt2", "gpt4", "cl100k", "llama3",
  // "qwen2", "o200k", "whitespace" or a regular expression. Default: gpt2 for a pair; for a tiktoken file the one that
  // goes with its name (cl100k_base.tiktoken ...) or with the tokenizer.json beside it.
  std::optional<std::string> pretokenizer;
  // Special tokens of a tiktoken file or a pair, by their text. Default: those that go with the file's name.
  std::map<std::string, uint32_t> special_tokens;
};

// Loads from `path`: a directory (its tokenizer.json; else vocab.json + merges.txt; else its one *.tiktoken file), a
// tokenizer.json, or a *.tiktoken file. The result encodes as Hugging Face tokenizers (add_special_tokens=False) or
// tiktoken (allowed_special="all") do; a byte that is not UTF-8 is one character that is no letter, number or space.
//
// NOT_FOUND (INPUT_UNREADABLE): no such file.
// INVALID_ARGUMENT (BAD_TOKENIZER): the file is damaged or contradicts itself; the message names what and where.
// INVALID_ARGUMENT (BAD_PATTERN): its regular expression cannot be compiled.
// UNIMPLEMENTED (UNSUPPORTED): a tokenizer of another kind (normalizers, byte fallback, word suffixes ...).
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadBpeTokenizer(const std::string& path,
                                                            const BpeLoadOptions& options = {});

// The vocabulary in a directory or tokenizer.json, to go on training from it. Errors as above; BAD_TOKENIZER also for
// ids that are not 0..n-1.
absl::StatusOr<BpeVocabulary> LoadBpeVocabulary(const std::string& path);

// Loads GPT-2's pair. "<|endoftext|>" is special, as in Hugging Face's GPT2TokenizerFast: with the id of vocab.json, or
// with the next free one. Errors as above.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadGpt2Tokenizer(const std::string& vocab_json,
                                                             const std::string& merges_txt,
                                                             const BpeLoadOptions& options = {});

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_BPE_LOAD_TOKENIZER_H_
