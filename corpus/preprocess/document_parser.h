// Finds the texts to tokenize in one JSON line, which it reads as Python's json.loads does.
#ifndef CAIRN_CORPUS_PREPROCESS_DOCUMENT_PARSER_H_
#define CAIRN_CORPUS_PREPROCESS_DOCUMENT_PARSER_H_

#include <simdjson.h>

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "corpus/preprocess/field_value.h"
#include "corpus/preprocess/python_json.h"

namespace cairn::corpus {

// This many bytes behind a line must be readable, whatever they are.
inline constexpr size_t kLinePadding = simdjson::SIMDJSON_PADDING;

// Reads a line with simdjson. If simdjson refuses the line, Python's own rules decide (NaN, integers of any length,
// unpaired surrogates in fields that nobody asked for). Not thread-safe.
class DocumentParser {
 public:
  // The `keys` must differ from each other. The last `number_keys` of them have lists of numbers from -128 to 127.
  explicit DocumentParser(std::vector<std::string> keys, size_t number_keys = 0)
      : keys_(std::move(keys)), number_keys_(number_keys) {}

  // Parses `line`, behind which kLinePadding bytes must be readable. values()[i] is then the value of keys[i], until
  // the next call; if the line has a key several times, the last one counts. INVALID_ARGUMENT (BAD_JSON_LINE): it is
  // not JSON or not an object, a key is missing, or a value is neither a text nor a list of texts (or no list of
  // numbers). The message says where in the line, but not which line.
  absl::Status Parse(std::string_view line);
  const std::vector<FieldValue>& values() const { return values_; }

 private:
  enum class Outcome { kDone, kUnsure };
  Outcome ParseFast(std::string_view line);

  std::vector<std::string> keys_;
  size_t number_keys_;
  simdjson::dom::parser parser_;
  PythonJson exact_;
  std::vector<FieldValue> values_;
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_PREPROCESS_DOCUMENT_PARSER_H_
