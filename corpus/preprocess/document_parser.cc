#include "corpus/preprocess/document_parser.h"

#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn::corpus {
namespace {

bool ReadNumbers(simdjson::dom::element element, FieldValue& value) {
  simdjson::dom::array list;
  if (element.get(list) != simdjson::SUCCESS) return false;
  value.is_list = true;
  for (const auto item : list) {
    int64_t number = 0;
    if (item.get(number) != simdjson::SUCCESS || number != static_cast<int8_t>(number)) return false;
    value.numbers.push_back(static_cast<int8_t>(number));
  }
  return true;
}

}  // namespace

absl::Status DocumentParser::Parse(std::string_view line) {
  if (ParseFast(line) == Outcome::kDone) return absl::OkStatus();
  // The slower, exact parser decides, and knows what to say.
  return exact_.Parse(line, keys_, values_, number_keys_);
}

DocumentParser::Outcome DocumentParser::ParseFast(std::string_view line) {
  simdjson::dom::object object;
  if (parser_.parse(line.data(), line.size(), /*realloc_if_needed=*/false).get(object) != simdjson::SUCCESS) {
    return Outcome::kUnsure;
  }
  values_.assign(keys_.size(), {});
  for (const auto [name, element] : object) {
    for (size_t i = 0; i < keys_.size(); ++i) {
      if (name != keys_[i]) continue;
      FieldValue& value = values_[i];
      value = {};
      if (i >= keys_.size() - number_keys_) {
        if (!ReadNumbers(element, value)) return Outcome::kUnsure;
        continue;
      }
      std::string_view text;
      if (element.get(text) == simdjson::SUCCESS) {
        value.texts.push_back(text);
        continue;
      }
      simdjson::dom::array list;
      if (element.get(list) != simdjson::SUCCESS) return Outcome::kUnsure;
      value.is_list = true;
      for (const auto item : list) {
        if (item.get(text) != simdjson::SUCCESS) return Outcome::kUnsure;
        value.texts.push_back(text);
      }
    }
  }
  for (const FieldValue& value : values_) {
    if (!value.is_list && value.texts.empty()) return Outcome::kUnsure;
  }
  return Outcome::kDone;
}

}  // namespace cairn::corpus
