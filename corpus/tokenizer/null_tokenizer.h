// Reads texts that are numbers, separated by blanks, as their ids. Megatron-LM has such a tokenizer for measurements.
#ifndef CAIRN_CORPUS_TOKENIZER_NULL_TOKENIZER_H_
#define CAIRN_CORPUS_TOKENIZER_NULL_TOKENIZER_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string_view>

#include "corpus/tokenizer/tokenizer.h"

namespace cairn::corpus {

class NullTokenizer final : public Tokenizer {
 public:
  // More would not be ids of 31 bits, which is what a token file holds.
  static constexpr uint32_t kMostNumbers = std::numeric_limits<int32_t>::max();

  // A text may have the numbers 0 to `numbers` - 1; the id `numbers` ends a document. `numbers` is at most
  // kMostNumbers.
  explicit NullTokenizer(uint32_t numbers) : numbers_(numbers) {}

  // Encode() also fails with INVALID_ARGUMENT (BAD_REQUEST): the text is not numbers in this range with one blank
  // between them.
  std::unique_ptr<Encoder> NewEncoder() const override;
  uint32_t vocab_size() const override { return numbers_ + 1; }
  uint32_t end_of_document() const { return numbers_; }
  std::optional<uint32_t> IdOf(std::string_view) const override { return std::nullopt; }

 private:
  const uint32_t numbers_;
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_TOKENIZER_NULL_TOKENIZER_H_
