#include "corpus/punkt/punkt_chars.h"

#include <unicode/locid.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

#include <algorithm>

#include "corpus/unicode/utf8.h"

namespace cairn::corpus {
namespace {

UChar32 Icu(char32_t c) { return static_cast<UChar32>(c); }

}  // namespace

bool IsPythonSpace(char32_t c) { return (c >= 0x1C && c <= 0x1F) || IsRegexSpace(c); }

bool IsRegexSpace(char32_t c) {
  if (c < 0x80) return (c >= 0x9 && c <= 0xD) || c == 0x20;
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

bool IsRegexDigit(char32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  return u_charType(Icu(c)) == U_DECIMAL_DIGIT_NUMBER;
}

bool IsRegexLetter(char32_t c) {
  if (c < 0x80) return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  constexpr uint32_t kMarksAndConnectors = U_GC_M_MASK | U_GC_PC_MASK;
  return u_hasBinaryProperty(Icu(c), UCHAR_ALPHABETIC) != 0 || u_hasBinaryProperty(Icu(c), UCHAR_JOIN_CONTROL) != 0 ||
         (U_MASK(u_charType(Icu(c))) & kMarksAndConnectors) != 0;
}

bool IsPythonUpper(char32_t c) { return c < 0x80 ? c >= 'A' && c <= 'Z' : u_isUUppercase(Icu(c)) != 0; }
bool IsPythonLower(char32_t c) { return c < 0x80 ? c >= 'a' && c <= 'z' : u_isULowercase(Icu(c)) != 0; }

std::string PythonLower(std::string_view text) {
  std::string lower(text);
  if (std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; })) {
    for (char& c : lower) {
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + ('a' - 'A'));
    }
    return lower;
  }
  lower.clear();
  icu::UnicodeString::fromUTF8(icu::StringPiece(text.data(), static_cast<int32_t>(text.size())))
      .toLower(icu::Locale::getRoot())
      .toUTF8String(lower);
  return lower;
}

std::string_view PythonRstrip(std::string_view text) {
  while (!text.empty()) {
    size_t at = text.size() - 1;
    while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
    size_t next = at;
    if (!IsPythonSpace(NextScalar(text, next))) break;
    text = text.substr(0, at);
  }
  return text;
}

}  // namespace cairn::corpus
