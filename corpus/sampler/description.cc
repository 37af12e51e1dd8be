#include "corpus/sampler/description.h"

#include <openssl/evp.h>

#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/io/ranged_input.h"

namespace cairn::corpus {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostIdentifierBytes = size_t{64} << 10;
constexpr int kMostLevels = 32;

// Python's repr of a float: the shortest digits, with an exponent below 1e-4 and from 1e16.
void AppendFloat(double value, std::string& text) {
  if (!std::isfinite(value)) {
    text += std::isnan(value) ? "NaN" : value < 0 ? "-Infinity" : "Infinity";
    return;
  }
  std::array<char, 32> buffer{};
  char* const end =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::scientific).ptr;
  const std::string_view scientific(buffer.data(), static_cast<size_t>(end - buffer.data()));
  const int exponent = std::atoi(scientific.data() + scientific.find('e') + 1);  // the buffer ends with zeros
  if (exponent < -4 || exponent >= 16) {
    text += scientific;
    return;
  }
  char* const fixed_end =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::fixed).ptr;
  const std::string_view fixed(buffer.data(), static_cast<size_t>(fixed_end - buffer.data()));
  text += fixed;
  if (fixed.find('.') == fixed.npos) text += ".0";
}

// Returns the code point at the beginning of `bytes` and drops it. A byte that begins none stands for U+DC80 to U+DCFF.
uint32_t TakeCharacter(std::string_view& bytes) {
  const auto at = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const uint32_t first = at(0);
  const size_t length = first < 0x80   ? 1
                        : first < 0xc2 ? 0
                        : first < 0xe0 ? 2
                        : first < 0xf0 ? 3
                        : first < 0xf5 ? 4
                                       : 0;
  uint32_t code = length < 2 ? first : first & (0x7fu >> length);
  bool whole = length > 0 && length <= bytes.size();
  for (size_t i = 1; whole && i < length; ++i) {
    whole = (at(i) & 0xc0) == 0x80;
    code = code << 6 | (at(i) & 0x3fu);
  }
  const bool out_of_range = (length == 3 && (code < 0x800 || (code >= 0xd800 && code < 0xe000))) ||
                            (length == 4 && (code < 0x10000 || code > 0x10ffff));
  if (!whole || out_of_range) {
    bytes.remove_prefix(1);
    return 0xdc00 + first;
  }
  bytes.remove_prefix(length);
  return code;
}

void AppendString(std::string_view value, std::string& text) {
  text += '"';
  while (!value.empty()) {
    const uint32_t code = TakeCharacter(value);
    switch (code) {
      case '"':
        text += "\\\"";
        break;
      case '\\':
        text += "\\\\";
        break;
      case '\n':
        text += "\\n";
        break;
      case '\r':
        text += "\\r";
        break;
      case '\t':
        text += "\\t";
        break;
      case '\f':
        text += "\\f";
        break;
      case '\b':
        text += "\\b";
        break;
      default:
        if (code >= 0x20 && code < 0x7f) {
          text += static_cast<char>(code);
        } else if (code < 0x10000) {
          absl::StrAppendFormat(&text, "\\u%04x", code);
        } else {
          absl::StrAppendFormat(&text, "\\u%04x\\u%04x", 0xd800 + ((code - 0x10000) >> 10), 0xdc00 + (code & 0x3ff));
        }
    }
  }
  text += '"';
}

void AppendValue(const Json& value, size_t indent, std::string& text) {
  const auto new_line = [&text](size_t spaces) {
    text += '\n';
    text.append(spaces, ' ');
  };
  if (value.is_string()) {
    AppendString(value.get_ref<const std::string&>(), text);
  } else if (value.is_number_float()) {
    AppendFloat(value.get<double>(), text);
  } else if (!value.is_structured() || value.empty()) {
    text += value.dump();
  } else {
    text += value.is_object() ? '{' : '[';
    bool first = true;
    for (const auto& item : value.items()) {
      if (!first) text += ',';
      first = false;
      new_line(indent + 4);
      if (value.is_object()) {
        AppendString(item.key(), text);
        text += ": ";
      }
      AppendValue(item.value(), indent + 4, text);
    }
    new_line(indent);
    text += value.is_object() ? '}' : ']';
  }
}

int LevelsOf(const Json& value, int most) {
  int levels = 0;
  if (!value.is_structured() || most == 0) return levels;
  for (const Json& item : value) levels = std::max(levels, LevelsOf(item, most - 1));
  return levels + 1;
}

}  // namespace

std::string PythonJson(const Json& value) {
  std::string text;
  AppendValue(value, 0, text);
  return text;
}

std::string DescriptionHash(std::string_view description) {
  std::array<unsigned char, 16> digest;
  EVP_Digest(description.data(), description.size(), digest.data(), nullptr, EVP_md5(), nullptr);
  return absl::BytesToHexString(std::string(reinterpret_cast<const char*>(digest.data()), digest.size()));
}

absl::StatusOr<Json> ReadTokenizerIdentifiers(const std::string& path) {
  const char* const next =
      "Write json.dumps(tokenizer.unique_identifiers) of the tokenizer that Megatron's build_tokenizer makes, or name "
      "a "
      "description.txt of an earlier cache.";
  const auto file = RangedInput::Open(path);
  if (HasReason(file.status(), Reason::kInputUnreadable)) return WithMetadata(file.status(), {{"next", next}});
  CAIRN_RETURN_IF_ERROR(file.status());
  std::string content(kMostIdentifierBytes + 1, '\0');
  CAIRN_ASSIGN_OR_RETURN(const size_t got, file->Read(0, content.data(), content.size()));
  const auto bad = [&](const char* fault) {
    return MakeError(Reason::kBadTokenizer, absl::StrCat(path, ": ", fault), {{"file", path}, {"next", next}});
  };
  if (got == content.size()) return bad("it is larger than 64 KiB");
  content.resize(got);
  Json json = Json::parse(content, nullptr, false);
  if (!json.is_object()) return bad("it is no JSON object");
  const auto datasets = json.find("datasets");  // the description of a blend
  if (datasets != json.end() && datasets->is_array() && !datasets->empty() && datasets->front().is_object()) {
    json = Json(datasets->front());
  }
  if (const auto tokenizer = json.find("tokenizer"); tokenizer != json.end()) json = Json(*tokenizer);
  if (!json.is_object() || !json.contains("class")) return bad("it has no object with a tokenizer's class");
  if (LevelsOf(json, kMostLevels + 1) > kMostLevels) return bad("it nests deeper than 32 levels");
  return json;
}

}  // namespace cairn::corpus
