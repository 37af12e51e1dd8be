// Reads texts that are numbers, separated by blanks, as their ids. Megatron-LM has such a tokenizer for measurements.
#ifndef CAIRN_CORPUS_TOKENIZER_NULL_TOKENIZER_H_
#define CAIRN_CORPUS_TOKENIZER_NULL_TOKENIZER_H_

#include <cstdint>
#include <memory>

#include "corpus/tokenizer/tokenizer.h"

namespace cairn::corpus {

// Takes ids from 0 to `vocab_size` - 1; `vocab_size` itself ends a document. Encode() fails with INVALID_ARGUMENT
// (BAD_REQUEST): the text is not numbers in this range with one blank between them.
std::unique_ptr<Tokenizer> NullTokenizer(uint32_t vocab_size);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_TOKENIZER_NULL_TOKENIZER_H_
