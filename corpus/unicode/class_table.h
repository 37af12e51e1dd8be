// Has the classes of characters that the pre-tokenizers' regular expressions distinguish, as of Unicode 16.0.0.
#ifndef CAIRN_CORPUS_UNICODE_CLASS_TABLE_H_
#define CAIRN_CORPUS_UNICODE_CLASS_TABLE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace cairn::corpus {

// These are the bits of a character's class. No bit is set for anything else (punctuation, symbols, controls,
// unassigned).
enum CharClass : uint8_t {
  kLetter = 1,  // \p{L}
  kNumber = 2,  // \p{N}
  kSpace = 4,   // \s, White_Space
  kUpper = 8,   // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]
  kLower = 16,  // [\p{Ll}\p{Lm}\p{Lo}\p{M}]
  kMark = 32,   // \p{M}
};

// Takes code points up to U+10FFFF.
inline uint8_t ClassOf(char32_t code_point);

// The two-stage table that ClassOf reads.
extern const uint8_t kUnicodeBlockOf[0x1100];
extern const uint8_t kUnicodeClasses[][256];

// The classes of U+0000..U+007F, and kNotAscii for bytes from 0x80 on.
inline constexpr uint8_t kNotAscii = 128;
using ByteClassTable = std::array<uint8_t, 256>;
extern const ByteClassTable kByteClass;

struct Character {
  static constexpr char32_t kInvalid = 0xFFFFFFFF;
  char32_t code_point;  // kInvalid for a byte that is not part of valid UTF-8 (Unicode table 3-7)
  uint32_t length;      // in bytes; 1 for an invalid one
  uint8_t char_class;   // 0 for an invalid one
};

// Returns the character at `p`, where p < end.
inline Character DecodeCharacter(const uint8_t* p, const uint8_t* end);

// Returns the offset of the first byte that is not part of valid UTF-8; npos if there is none.
size_t FindInvalidUtf8(std::string_view text);

// These are inline because they stand in the innermost loops.

inline uint8_t ClassOf(char32_t code_point) {
  return kUnicodeClasses[kUnicodeBlockOf[code_point >> 8]][code_point & 0xFF];
}

inline bool IsUtf8Continuation(uint8_t byte) { return (byte & 0xC0) == 0x80; }

inline Character DecodeCharacter(const uint8_t* p, const uint8_t* end) {
  constexpr Character kBad = {Character::kInvalid, 1, 0};
  const uint32_t b0 = p[0];
  if (b0 < 0x80) return {b0, 1, kByteClass[b0]};
  const size_t left = static_cast<size_t>(end - p);
  if (b0 < 0xC2) return kBad;
  if (b0 < 0xE0) {
    if (left < 2 || !IsUtf8Continuation(p[1])) return kBad;
    const char32_t code = (b0 & 0x1F) << 6 | (p[1] & 0x3F);
    return {code, 2, ClassOf(code)};
  }
  if (b0 < 0xF0) {
    if (left < 3 || !IsUtf8Continuation(p[1]) || !IsUtf8Continuation(p[2])) return kBad;
    const char32_t code = (b0 & 0x0F) << 12 | (p[1] & 0x3Fu) << 6 | (p[2] & 0x3F);
    if (code < 0x800 || (code >= 0xD800 && code < 0xE000)) return kBad;
    return {code, 3, ClassOf(code)};
  }
  if (b0 < 0xF5) {
    if (left < 4 || !IsUtf8Continuation(p[1]) || !IsUtf8Continuation(p[2]) || !IsUtf8Continuation(p[3])) return kBad;
    const char32_t code = (b0 & 0x07) << 18 | (p[1] & 0x3Fu) << 12 | (p[2] & 0x3Fu) << 6 | (p[3] & 0x3F);
    if (code < 0x10000 || code > 0x10FFFF) return kBad;
    return {code, 4, ClassOf(code)};
  }
  return kBad;
}

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_UNICODE_CLASS_TABLE_H_
