// Finds in one JSON line the texts that are to be tokenized, as Python's json.loads reads it.
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

// So many bytes behind a line must be readable, whatever they hold.
inline constexpr size_t kLinePadding = simdjson::SIMDJSON_PADDING;

// Reads a line with simdjson. If that refuses the line, Python's own rules decide (NaN, integers of any length,
// unpaired surrogates in fields that nobody asked for). Not thread-safe.
class DocumentParser {
 public:
  // `keys`: different from each other.
  explicit DocumentParser(std::vector<std::string> keys) : keys_(std::move(keys)) {}

  // Parses `line`, behind which kLinePadding bytes can be read. values()[i] is then the value of keys[i]; of equal keys
  // in the line the last counts. Valid until the next call.
  // INVALID_ARGUMENT (BAD_JSON_LINE): not JSON, not an object, a key is missing, or its value is neither a text nor a
  // list of texts. The message says where in the line, not which line.
  absl::Status Parse(std::string_view line);
  const std::vector<FieldValue>& values() const { return values_; }

 private:
  enum class Outcome { kDone, kUnsure };
  Outcome ParseFast(std::string_view line);

  std::vector<std::string> keys_;
  simdjson::dom::parser parser_;
  PythonJson exact_;
  std::vector<FieldValue> values_;
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_PREPROCESS_DOCUMENT_PARSER_H_
