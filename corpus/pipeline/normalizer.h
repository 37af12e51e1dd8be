// Reads the normalizer of a tokenizer.json.
#ifndef CAIRN_CORPUS_PIPELINE_NORMALIZER_H_
#define CAIRN_CORPUS_PIPELINE_NORMALIZER_H_

#include <simdjson.h>

#include <vector>

#include "absl/status/status.h"
#include "corpus/bpe/json_reader.h"
#include "corpus/pipeline/pieces.h"

namespace cairn::corpus {

// Appends the steps of the normalizer `value` to `steps`; null has none. It knows NFC, NFD, NFKC, NFKD, Lowercase,
// StripAccents, Strip, Replace, Prepend, ByteLevel, BertNormalizer, Nmt, Precompiled and Sequence. INVALID_ARGUMENT
// (BAD_TOKENIZER): a part of it is damaged; (BAD_PATTERN): a regular expression cannot be compiled. UNIMPLEMENTED
// (UNSUPPORTED): it is another kind.
absl::Status ReadNormalizer(const JsonReader& reader, simdjson::dom::element value, std::vector<Step>& steps);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_PIPELINE_NORMALIZER_H_
