// Reads the pre-tokenizer of a tokenizer.json.
#ifndef CAIRN_CORPUS_PIPELINE_PRE_TOKENIZER_H_
#define CAIRN_CORPUS_PIPELINE_PRE_TOKENIZER_H_

#include <simdjson.h>

#include <vector>

#include "absl/status/statusor.h"
#include "corpus/bpe/json_reader.h"
#include "corpus/pipeline/pieces.h"

namespace cairn::corpus {

struct PreTokenizerSteps {
  std::vector<Step> steps;
  // The last step writes each byte as a character of the byte-level alphabet. A model that reads bytes leaves it out.
  bool ends_in_byte_level = false;
};

// Reads the pre-tokenizer `value`; null has no steps. It knows BertPreTokenizer, ByteLevel, CharDelimiterSplit, Digits,
// FixedLength, Metaspace, Punctuation, Sequence, Split, UnicodeScripts, Whitespace and WhitespaceSplit.
// INVALID_ARGUMENT (BAD_TOKENIZER): a part of it is damaged; (BAD_PATTERN): a regular expression cannot be compiled.
// UNIMPLEMENTED (UNSUPPORTED): it is another kind.
absl::StatusOr<PreTokenizerSteps> ReadPreTokenizer(const JsonReader& reader, simdjson::dom::element value);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_PIPELINE_PRE_TOKENIZER_H_
