// Loads byte-level BPE tokenizers from the files in which they are published.
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

// Says what the file itself does not say.
struct BpeLoadOptions {
  // The pre-tokenizer of a tiktoken file or of a vocab.json + merges.txt pair: "gpt2", "gpt4", "cl100k", "llama3",
  // "qwen2", "o200k", "whitespace" or a regular expression. The default is gpt2 for a pair; for a tiktoken file it is
  // the one that belongs to the file's name (cl100k_base.tiktoken ...) or to the tokenizer.json beside it.
  std::optional<std::string> pretokenizer;
  // The special tokens of a tiktoken file or a pair, by their text. By default they are those that belong to the file's
  // name.
  std::map<std::string, uint32_t> special_tokens;
};

// Returns the file that holds the tokenizer: `path` itself, or of a directory its tokenizer.json, else its vocab.json,
// else its only *.tiktoken file. NOT_FOUND (INPUT_UNREADABLE): the directory has none of them.
absl::StatusOr<std::string> FindTokenizerFile(const std::string& path);
// Reads a tokenizer's file, which may be gzip or Zstandard. NOT_FOUND (INPUT_UNREADABLE): there is no such file.
// INVALID_ARGUMENT (BAD_TOKENIZER): it is larger than 1 GiB.
absl::StatusOr<std::string> ReadTokenizerFile(const std::string& path);

// Loads from `path`: a directory (its tokenizer.json; else vocab.json + merges.txt; else its only *.tiktoken file), a
// tokenizer.json, or a *.tiktoken file. The result encodes as Hugging Face tokenizers (add_special_tokens=False) or
// tiktoken (allowed_special="all") does. A byte that is not UTF-8 counts as a character that is no letter, number or
// space.
//
// NOT_FOUND (INPUT_UNREADABLE): there is no such file.
// INVALID_ARGUMENT (BAD_TOKENIZER): the file is damaged or contradicts itself; the message says what and where;
// (BAD_PATTERN): its regular expression cannot be compiled.
// UNIMPLEMENTED (UNSUPPORTED): it is a tokenizer of another kind (normalizers, byte fallback, word suffixes ...).
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadBpeTokenizer(const std::string& path,
                                                            const BpeLoadOptions& options = {});

// Loads the vocabulary from a directory or tokenizer.json, so that training can go on from it. Fails as above, and with
// BAD_TOKENIZER if the ids are not 0..n-1.
absl::StatusOr<BpeVocabulary> LoadBpeVocabulary(const std::string& path);

// Loads GPT-2's pair of files. "<|endoftext|>" is special, as in Hugging Face's GPT2TokenizerFast. Its id is that of
// vocab.json, or the next free one; `added_end_of_text` then becomes true. Fails as above.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadGpt2Tokenizer(const std::string& vocab_json,
                                                             const std::string& merges_txt,
                                                             const BpeLoadOptions& options = {},
                                                             bool* added_end_of_text = nullptr);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_BPE_LOAD_TOKENIZER_H_
