// Holds what a line of JSON has under one key.
#ifndef CAIRN_CORPUS_PREPROCESS_FIELD_VALUE_H_
#define CAIRN_CORPUS_PREPROCESS_FIELD_VALUE_H_

#include <cstdint>
#include <string_view>
#include <vector>

namespace cairn::corpus {

// The value of one key: a text, a list of sentences, or a list of numbers. The texts are valid UTF-8.
struct FieldValue {
  bool is_list = false;
  std::vector<std::string_view> texts;  // exactly one if it is no list
  std::vector<int8_t> numbers;          // of a key that has numbers
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_PREPROCESS_FIELD_VALUE_H_
