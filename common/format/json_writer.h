// Writes JSON, or only measures its length. The JSON may be the contents of a JSON string, which needs more escapes.
#ifndef CAIRN_COMMON_FORMAT_JSON_WRITER_H_
#define CAIRN_COMMON_FORMAT_JSON_WRITER_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace cairn {

// The same code writes JSON through one of two sinks, so that the measured length and the text cannot disagree.
class CountSink {
 public:
  void Raw(std::string_view text) { bytes_ += text.size(); }
  void Number(uint64_t number) {
    do {
      ++bytes_;
      number /= 10;
    } while (number != 0);
  }
  void Char(char) { ++bytes_; }
  uint64_t bytes() const { return bytes_; }

 private:
  uint64_t bytes_ = 0;
};

class StringSink {
 public:
  explicit StringSink(std::string& text) : text_(text) {}
  void Raw(std::string_view text) { text_.append(text); }
  void Number(uint64_t number) { absl::StrAppend(&text_, number); }
  void Char(char c) { text_.push_back(c); }

 private:
  std::string& text_;
};

// Writes JSON into a sink. With depth 1 the JSON is the contents of a JSON string.
//
// A `"` or `\` of a name becomes `\"` or `\\` in JSON. Within a JSON string, each of these characters is escaped once
// more. Backslash() writes the backslash of an escape: `\`, or `\\` at depth 1.
template <typename Sink, int depth>
class JsonWriter {
 public:
  explicit JsonWriter(Sink& sink) : sink_(sink) {}

  void Text(std::string_view text) {
    Quote();
    for (char c : text) {
      if (c == '"' || c == '\\') {
        Backslash();
        if constexpr (depth == 1) sink_.Char('\\');
      }
      sink_.Char(c);
    }
    Quote();
  }
  // Writes a text that needs no escapes.
  void Plain(std::string_view text) {
    Quote();
    sink_.Raw(text);
    Quote();
  }
  void Key(std::string_view key) {
    Plain(key);
    sink_.Char(':');
  }
  void Raw(std::string_view text) { sink_.Raw(text); }
  void Number(uint64_t number) { sink_.Number(number); }
  template <typename Numbers>
  void List(const Numbers& numbers) {
    sink_.Char('[');
    bool first = true;
    for (auto number : numbers) {
      if (!first) sink_.Char(',');
      first = false;
      sink_.Number(static_cast<uint64_t>(number));
    }
    sink_.Char(']');
  }
  Sink& sink() { return sink_; }

 private:
  void Backslash() {
    sink_.Char('\\');
    if constexpr (depth == 1) sink_.Char('\\');
  }
  void Quote() {
    if constexpr (depth == 1) sink_.Char('\\');
    sink_.Char('"');
  }

  Sink& sink_;
};

}  // namespace cairn

#endif  // CAIRN_COMMON_FORMAT_JSON_WRITER_H_
