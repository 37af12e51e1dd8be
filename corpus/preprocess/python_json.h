// Reads JSON as Python's json module does: RFC 8259, and NaN, Infinity, numbers of any length, unpaired surrogates. It
// is slow and exact. It decides about lines that the fast parser refuses, and says what is wrong with them.
#ifndef CAIRN_CORPUS_PREPROCESS_PYTHON_JSON_H_
#define CAIRN_CORPUS_PREPROCESS_PYTHON_JSON_H_

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "corpus/preprocess/field_value.h"

namespace cairn::corpus {

// Not thread-safe. It holds the texts of the last line.
class PythonJson {
 public:
  // Fills values[i] with the value of keys[i]; texts are valid until the next call. The last `number_keys` keys have
  // lists of numbers. Nesting is limited to 1,000 levels,
  // as in Python. INVALID_ARGUMENT (BAD_JSON_LINE): see DocumentParser::Parse; the message has the column (in bytes,
  // from 1).
  absl::Status Parse(std::string_view line, const std::vector<std::string>& keys, std::vector<FieldValue>& values,
                     size_t number_keys = 0);

 private:
  class Reader;
  std::deque<std::string> texts_;  // a deque does not move its elements
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_PREPROCESS_PYTHON_JSON_H_
