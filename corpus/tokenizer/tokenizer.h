// The interface of all kinds of tokenizers, which turn text into token ids.
#ifndef CAIRN_CORPUS_TOKENIZER_TOKENIZER_H_
#define CAIRN_CORPUS_TOKENIZER_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace cairn::corpus {

// Encodes for one thread, because it holds caches and scratch memory. Not thread-safe. A Tokenizer makes it and must
// outlive it.
class Encoder {
 public:
  virtual ~Encoder() = default;

  // Appends the ids of `text` (one document or sentence, without a line's newline) to `ids`. It matches special tokens
  // that stand in the text and adds none. INVALID_ARGUMENT (INVALID_UTF8): the text is not UTF-8, and the tokenizer's
  // policy is to stop; `ids` is unchanged.
  virtual absl::Status Encode(std::string_view text, std::vector<uint32_t>& ids) = 0;
};

// Immutable once it is loaded; thread-safe.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  virtual std::unique_ptr<Encoder> NewEncoder() const = 0;
  // All ids are below this. Special and extra tokens count.
  virtual uint32_t vocab_size() const = 0;
  // Returns the id of a token by its text ("[SEP]", "<|endoftext|>"); nothing if there is none.
  virtual std::optional<uint32_t> IdOf(std::string_view token) const = 0;
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_TOKENIZER_TOKENIZER_H_
