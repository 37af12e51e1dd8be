#include "foreign/read/source/object_text.h"

#include <charconv>
#include <cmath>
#include <cstddef>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace cairn {
namespace {

// Appends a control character of a string as Python writes it.
void AppendControl(unsigned char c, std::string& json) {
  switch (c) {
    case '\b':
      json += "\\b";
      return;
    case '\t':
      json += "\\t";
      return;
    case '\n':
      json += "\\n";
      return;
    case '\f':
      json += "\\f";
      return;
    case '\r':
      json += "\\r";
      return;
    default:
      absl::StrAppendFormat(&json, "\\u%04x", static_cast<int>(c));
  }
}

// Copies a string of JSON that begins at `at`, and returns where it ends.
size_t CopyString(std::string_view text, size_t at, std::string& json) {
  json += text[at++];
  while (at < text.size() && text[at] != '"') {
    unsigned code = 0;
    const std::string_view digits = text.substr(at).starts_with("\\u") ? text.substr(at + 2, 4) : std::string_view();
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
    if (digits.size() == 4 && read.ptr == digits.data() + digits.size() && code < 0x20) {
      AppendControl(static_cast<unsigned char>(code), json);
      at += 6;
      continue;
    }
    if (text[at] == '\\' && at + 1 < text.size()) json += text[at++];
    json += text[at++];
  }
  if (at < text.size()) json += text[at++];
  return at;
}

// Copies a number that begins at `at`, and returns where it ends.
size_t CopyNumber(std::string_view text, size_t at, std::string& json) {
  size_t end = at + 1;
  while (end < text.size() && (absl::ascii_isdigit(static_cast<unsigned char>(text[end])) ||
                               std::string_view("+-.eE").find(text[end]) != std::string_view::npos)) {
    ++end;
  }
  const std::string_view token = text.substr(at, end - at);
  double number = 0;
  const bool is_float = token.find_first_of(".eE") != std::string_view::npos;
  const auto read = std::from_chars(token.data(), token.data() + token.size(), number);
  // An int of any length keeps its digits, and so does a float that is too large for a double.
  if (is_float && read.ec == std::errc() && read.ptr == token.data() + token.size()) {
    json += ObjectFloat(number);
  } else {
    json += token;
  }
  return end;
}

}  // namespace

std::string ObjectFloat(double number) {
  if (std::isnan(number)) return "NaN";
  if (std::isinf(number)) return number < 0 ? "-Infinity" : "Infinity";
  char buffer[32];
  const auto written = std::to_chars(buffer, buffer + sizeof(buffer), number, std::chars_format::scientific);
  std::string_view text(buffer, static_cast<size_t>(written.ptr - buffer));
  const std::string sign = text.starts_with('-') ? "-" : "";
  text.remove_prefix(sign.size());
  const size_t e = text.find('e');
  int exponent = 0;
  const std::string_view power = text.substr(e + (text[e + 1] == '+' ? 2 : 1));
  std::from_chars(power.data(), power.data() + power.size(), exponent);
  std::string digits(1, text[0]);
  if (e > 2) digits += text.substr(2, e - 2);  // behind the point
  // Python writes an exponent from 1e16 on and below 1e-4.
  if (exponent >= 16 || exponent < -4) {
    return absl::StrCat(sign, digits.substr(0, 1), digits.size() > 1 ? "." : "", digits.substr(1), "e",
                        exponent < 0 ? "-" : "+", absl::Dec(std::abs(exponent), absl::kZeroPad2));
  }
  if (exponent < 0) {
    const auto zeros = static_cast<size_t>(-exponent) - 1;
    return absl::StrCat(sign, "0.", std::string(zeros, '0'), digits);
  }
  const auto whole = static_cast<size_t>(exponent) + 1;  // digits before the point
  if (whole >= digits.size()) return absl::StrCat(sign, digits, std::string(whole - digits.size(), '0'), ".0");
  return absl::StrCat(sign, digits.substr(0, whole), ".", digits.substr(whole));
}

void AppendObjectString(std::string_view text, std::string& json) {
  json += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      json += '\\';
      json += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      AppendControl(static_cast<unsigned char>(c), json);
    } else {
      json += c;
    }
  }
  json += '"';
}

std::string CanonicalObject(std::string_view bytes) {
  if (bytes.empty() || bytes[0] < kObjectJson || bytes[0] > kObjectTaggedJsonOfClasses) return std::string(bytes);
  std::string json(1, bytes[0]);
  json.reserve(bytes.size());
  for (size_t at = 1; at < bytes.size();) {
    const char c = bytes[at];
    const bool minus =
        c == '-' && at + 1 < bytes.size() && absl::ascii_isdigit(static_cast<unsigned char>(bytes[at + 1]));
    if (c == '"') {
      at = CopyString(bytes, at, json);
    } else if (minus || absl::ascii_isdigit(static_cast<unsigned char>(c))) {
      at = CopyNumber(bytes, at, json);
    } else {
      if (!absl::ascii_isspace(static_cast<unsigned char>(c))) json += c;
      ++at;
    }
  }
  return json;
}

}  // namespace cairn
