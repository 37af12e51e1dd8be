// Writes JSON that may stand within a JSON string, or only measures it.
#ifndef CAIRN_COMMON_FORMAT_JSON_WRITER_H_
#define CAIRN_COMMON_FORMAT_JSON_WRITER_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace cairn {

// JSON is written through one of two sinks, so that its length and its text cannot disagree.
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

// Writes JSON into a sink. With depth 1 that JSON itself stands within a JSON string.
//
// A `"` or `\` of a name is written as `\"` or `\\` in JSON; where that JSON stands within a string, each of these
// characters is escaped once more. Backslash() writes the escape's own backslash: `\`, or `\\` at depth 1.
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
