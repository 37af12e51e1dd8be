// Finds a pattern of a tokenizer.json, {"String": ...} or {"Regex": ...}, in texts.
#ifndef CAIRN_CORPUS_PIPELINE_TEXT_PATTERN_H_
#define CAIRN_CORPUS_PIPELINE_TEXT_PATTERN_H_

#include <simdjson.h>

#include <string>

#include "absl/status/statusor.h"
#include "corpus/bpe/json_reader.h"
#include "corpus/pipeline/pieces.h"

namespace cairn::corpus {

// Finds a literal text, which must not be empty.
FindMatches MatchLiteral(std::string literal);

// Finds a regular expression, which is read as Hugging Face tokenizers reads it. INVALID_ARGUMENT (BAD_PATTERN): it
// cannot be compiled; the message has the position.
absl::StatusOr<FindMatches> MatchExpression(const std::string& expression);

// Reads {"String": literal} or {"Regex": expression}. Fails as above; INVALID_ARGUMENT (BAD_TOKENIZER): it is neither.
// UNIMPLEMENTED (UNSUPPORTED): it is empty.
absl::StatusOr<FindMatches> ReadPattern(const JsonReader& reader, simdjson::dom::object pattern);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_PIPELINE_TEXT_PATTERN_H_
