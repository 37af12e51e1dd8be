#include "corpus/preprocess/python_json.h"

#include <simdjson.h>

#include <algorithm>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/unicode/utf8.h"

namespace cairn::corpus {
namespace {

constexpr int kMaxDepth = 1000;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

class PythonJson::Reader {
 public:
  explicit Reader(std::string_view line) : line_(line) {}

  absl::Status Fail(std::string_view why) const { return FailAt(at_, why); }
  static absl::Status FailAt(size_t at, std::string_view why) {
    return MakeError(Reason::kBadJsonLine, absl::StrCat("column ", at + 1, ": ", std::string(why)),
                     {{"column", std::to_string(at + 1)}});
  }

  void SkipBlanks() {
    while (at_ < line_.size() && std::string_view(" \t\n\r").find(line_[at_]) != std::string_view::npos) ++at_;
  }
  bool AtEnd() const { return at_ == line_.size(); }
  char Peek() const { return AtEnd() ? '\0' : line_[at_]; }
  bool Take(char c) {
    if (AtEnd() || line_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool TakeWord(std::string_view word) {
    if (!line_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  size_t at() const { return at_; }
  std::string_view From(size_t begin) const { return line_.substr(begin, at_ - begin); }

  // Reads a string from its opening quote on. Sets `unpaired` if there is a surrogate without its other half, which
  // UTF-8 cannot hold.
  absl::Status String(std::string& out, bool& unpaired) {
    const size_t begin = at_;
    if (!Take('"')) return Fail("a string in double quotes was expected");
    out.clear();
    while (true) {
      if (AtEnd()) return FailAt(begin, "this string has no end");
      const char c = line_[at_];
      if (c == '"') {
        ++at_;
        return absl::OkStatus();
      }
      if (static_cast<unsigned char>(c) < 0x20) {
        return Fail(absl::StrFormat("control character 0x%02X in a string must be written \\u%04x", c, c));
      }
      ++at_;
      if (c != '\\') {
        out.push_back(c);
        continue;
      }
      CAIRN_RETURN_IF_ERROR(Escape(out, unpaired));
    }
  }

  absl::Status Number() {
    const size_t begin = at_;
    if (TakeWord("NaN") || TakeWord("Infinity") || TakeWord("-Infinity")) return absl::OkStatus();
    Take('-');
    const auto digits = [&] {
      const size_t first = at_;
      while (IsDigit(Peek())) ++at_;
      return at_ > first;
    };
    if (!Take('0') && !digits()) return FailAt(begin, "a value was expected");
    // As in Python, a dot or an exponent without digits does not belong to the number, so it is a mistake behind it.
    const size_t whole = at_;
    if (Take('.') && !digits()) at_ = whole;
    const size_t fraction = at_;
    if (Take('e') || Take('E')) {
      if (!Take('+')) Take('-');
      if (!digits()) at_ = fraction;
    }
    return absl::OkStatus();
  }

  // Reads any value and forgets it.
  absl::Status Skip(int depth) {
    if (depth > kMaxDepth) return Fail("more than 1000 levels of nesting");
    std::string ignored;
    bool unpaired = false;
    SkipBlanks();
    if (Peek() == '"') return String(ignored, unpaired);
    if (Take('{')) {
      SkipBlanks();
      if (Take('}')) return absl::OkStatus();
      while (true) {
        CAIRN_RETURN_IF_ERROR(Key(ignored, unpaired));
        CAIRN_RETURN_IF_ERROR(Skip(depth + 1));
        SkipBlanks();
        if (Take('}')) return absl::OkStatus();
        if (!Take(',')) return Fail("',' or '}' was expected");
      }
    }
    if (Take('[')) {
      SkipBlanks();
      if (Take(']')) return absl::OkStatus();
      while (true) {
        CAIRN_RETURN_IF_ERROR(Skip(depth + 1));
        SkipBlanks();
        if (Take(']')) return absl::OkStatus();
        if (!Take(',')) return Fail("',' or ']' was expected");
      }
    }
    if (TakeWord("true") || TakeWord("false") || TakeWord("null")) return absl::OkStatus();
    return Number();
  }

  // Reads "name" and the colon.
  absl::Status Key(std::string& name, bool& unpaired) {
    SkipBlanks();
    CAIRN_RETURN_IF_ERROR(String(name, unpaired));
    SkipBlanks();
    if (!Take(':')) return Fail("':' was expected");
    return absl::OkStatus();
  }

 private:
  std::optional<char32_t> Hex4() {
    if (line_.size() - at_ < 4) return std::nullopt;
    char32_t value = 0;
    for (size_t i = 0; i < 4; ++i) {
      const char c = line_[at_ + i];
      const char lower = static_cast<char>(c | 0x20);
      if (!IsDigit(c) && !(lower >= 'a' && lower <= 'f')) return std::nullopt;
      value = value * 16 + static_cast<char32_t>(IsDigit(c) ? c - '0' : lower - 'a' + 10);
    }
    at_ += 4;
    return value;
  }

  absl::Status Escape(std::string& out, bool& unpaired) {
    static constexpr std::string_view kNames = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
    const size_t begin = at_ - 1;
    if (AtEnd()) return FailAt(begin, "this string has no end");
    const char c = line_[at_++];
    if (const size_t place = kNames.find(c); place != std::string_view::npos) {
      out.push_back(kMeanings[place]);
      return absl::OkStatus();
    }
    if (c != 'u') return FailAt(begin, "no such escape in a JSON string");
    std::optional<char32_t> unit = Hex4();
    if (!unit) return FailAt(begin, "\\u needs four hexadecimal digits");
    if (*unit >= 0xD800 && *unit < 0xDC00 && line_.substr(at_).starts_with("\\u")) {
      const size_t back = at_;
      at_ += 2;
      const std::optional<char32_t> low = Hex4();
      if (low && *low >= 0xDC00 && *low < 0xE000) {
        unit = 0x10000 + ((*unit - 0xD800) << 10) + (*low - 0xDC00);
      } else {
        at_ = back;
      }
    }
    if (*unit >= 0xD800 && *unit < 0xE000) {
      unpaired = true;
    } else {
      AppendUtf8(*unit, out);
    }
    return absl::OkStatus();
  }

  std::string_view line_;
  size_t at_ = 0;
};

absl::Status PythonJson::Parse(std::string_view line, const std::vector<std::string>& keys,
                               std::vector<FieldValue>& values, size_t number_keys) {
  texts_.clear();
  values.assign(keys.size(), {});
  if (!simdjson::validate_utf8(line.data(), line.size())) {
    return MakeError(Reason::kBadJsonLine, "the line is not UTF-8");
  }
  Reader reader(line);
  reader.SkipBlanks();
  if (reader.AtEnd()) return MakeError(Reason::kBadJsonLine, "the line is blank; each must hold one JSON object");
  if (line.starts_with("\xEF\xBB\xBF")) {
    return MakeError(Reason::kBadJsonLine,
                     "the line begins with a byte order mark (U+FEFF), which JSON does not allow");
  }
  if (!reader.Take('{')) {
    // If the line is no JSON at all, that is what the error says.
    CAIRN_RETURN_IF_ERROR(reader.Skip(0));
    return MakeError(Reason::kBadJsonLine, "the line holds no JSON object");
  }

  std::vector<absl::Status> faults(keys.size());
  const auto text = [&](size_t key) -> absl::Status {
    const size_t begin = reader.at();
    bool unpaired = false;
    CAIRN_RETURN_IF_ERROR(reader.String(texts_.emplace_back(), unpaired));
    values[key].texts.push_back(texts_.back());
    if (unpaired) {
      faults[key] = Reader::FailAt(
          begin, absl::StrCat("the text of '", keys[key],
                              "' has half of a surrogate pair (\\ud800 to \\udfff alone), which is no character"));
    }
    return absl::OkStatus();
  };
  const auto has_numbers = [&](size_t key) { return key >= keys.size() - number_keys; };
  const auto wrong_type_at = [&](size_t key, size_t at) {
    const char* const wanted =
        has_numbers(key) ? "a list of whole numbers from -128 to 127" : "a text or a list of texts";
    faults[key] = Reader::FailAt(at, absl::StrCat("the value of '", keys[key], "' must be ", wanted));
  };
  const auto wrong_type = [&](size_t key) {
    wrong_type_at(key, reader.at());
    return reader.Skip(2);
  };
  const auto number = [&](size_t key) -> absl::Status {
    const size_t begin = reader.at();
    CAIRN_RETURN_IF_ERROR(reader.Skip(2));
    const std::string_view read = reader.From(begin);
    int32_t value = 0;
    const bool is_number = !read.empty() && (IsDigit(read.front()) || read.front() == '-');
    if (is_number && absl::SimpleAtoi(std::string(read), &value) && value == static_cast<int8_t>(value)) {
      values[key].numbers.push_back(static_cast<int8_t>(value));
    } else {
      wrong_type_at(key, begin);
    }
    return absl::OkStatus();
  };

  std::vector<bool> found(keys.size(), false);
  std::string name;
  reader.SkipBlanks();
  for (bool more = !reader.Take('}'); more;) {
    bool unpaired = false;
    CAIRN_RETURN_IF_ERROR(reader.Key(name, unpaired));
    reader.SkipBlanks();
    const auto wanted = unpaired ? keys.end() : std::find(keys.begin(), keys.end(), name);
    if (wanted == keys.end()) {
      CAIRN_RETURN_IF_ERROR(reader.Skip(1));
    } else {
      const auto key = static_cast<size_t>(wanted - keys.begin());
      found[key] = true;
      values[key] = {};
      faults[key] = absl::OkStatus();
      if (reader.Peek() == '"' && !has_numbers(key)) {
        CAIRN_RETURN_IF_ERROR(text(key));
      } else if (reader.Take('[')) {
        values[key].is_list = true;
        reader.SkipBlanks();
        for (bool items = !reader.Take(']'); items;) {
          reader.SkipBlanks();
          if (has_numbers(key)) {
            CAIRN_RETURN_IF_ERROR(number(key));
          } else if (reader.Peek() == '"') {
            CAIRN_RETURN_IF_ERROR(text(key));
          } else {
            CAIRN_RETURN_IF_ERROR(wrong_type(key));
          }
          reader.SkipBlanks();
          items = reader.Take(',');
          if (!items && !reader.Take(']')) return reader.Fail("',' or ']' was expected");
        }
      } else {
        CAIRN_RETURN_IF_ERROR(wrong_type(key));
      }
    }
    reader.SkipBlanks();
    more = reader.Take(',');
    if (!more && !reader.Take('}')) return reader.Fail("',' or '}' was expected");
  }
  reader.SkipBlanks();
  if (!reader.AtEnd()) return reader.Fail("the JSON object ends before; nothing may follow it");
  for (size_t i = 0; i < keys.size(); ++i) {
    if (!found[i]) {
      return MakeError(Reason::kBadJsonLine, absl::StrCat("the object has no key '", keys[i], "'"),
                       {{"next", "Name the keys that the lines have by --json-keys, or correct the line."}});
    }
    CAIRN_RETURN_IF_ERROR(faults[i]);
  }
  return absl::OkStatus();
}

}  // namespace cairn::corpus
