#include "common/format/json_syntax.h"

#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace cairn {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxMessage = 200;

// Accepts every value and stores only the error.
class SyntaxReader final : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(int64_t) override { return true; }
  bool number_unsigned(uint64_t) override { return true; }
  bool number_float(double, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(Json::binary_t&) override { return true; }
  bool start_object(size_t) override { return true; }
  bool key(std::string&) override { return true; }
  bool end_object() override { return true; }
  bool start_array(size_t) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& error) override {
    what_ = error.what();
    return false;
  }

  const std::string& what() const { return what_; }

 private:
  std::string what_;
};

}  // namespace

std::optional<std::string> JsonSyntaxError(std::string_view text) {
  SyntaxReader reader;
  if (Json::sax_parse(text, &reader)) return std::nullopt;
  // "[json.exception.parse_error.101] parse error at line 3, column 1: syntax error while parsing value - unexpected
  // ..."
  absl::string_view what = reader.what();
  if (const size_t name_ends = what.find("] "); name_ends != what.npos) what.remove_prefix(name_ends + 2);
  absl::ConsumePrefix(&what, "parse error at ");
  std::string message(what);
  constexpr std::string_view kLead = ": syntax error while parsing ";
  if (const size_t lead = message.find(kLead); lead != message.npos) {
    const size_t dash = message.find(" - ", lead);
    if (dash != message.npos) message.replace(lead, dash + 3 - lead, ": ");
  }
  if (message.size() > kMaxMessage) message = absl::StrCat(message.substr(0, kMaxMessage), " ...");
  for (char& c : message) {
    if (!absl::ascii_isprint(static_cast<unsigned char>(c))) c = '?';
  }
  return message;
}

}  // namespace cairn
