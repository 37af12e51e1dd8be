#include "corpus/unicode/class_table.h"

#include <gtest/gtest.h>
#include <unicode/uchar.h>

#include <string>

namespace cairn::corpus {
namespace {

std::string Utf8(char32_t c) {
  std::string s;
  if (c < 0x80) {
    s += static_cast<char>(c);
  } else if (c < 0x800) {
    s += static_cast<char>(0xC0 | c >> 6);
    s += static_cast<char>(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    s += static_cast<char>(0xE0 | c >> 12);
    s += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    s += static_cast<char>(0x80 | (c & 0x3F));
  } else {
    s += static_cast<char>(0xF0 | c >> 18);
    s += static_cast<char>(0x80 | (c >> 12 & 0x3F));
    s += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    s += static_cast<char>(0x80 | (c & 0x3F));
  }
  return s;
}

Character Decode(std::string_view text) {
  const auto* p = reinterpret_cast<const uint8_t*>(text.data());
  return DecodeCharacter(p, p + text.size());
}

// ICU has another (earlier) Unicode version. The categories of characters that it knows are stable, except for a few
// corrections, so any mistake in the table or its index would show.
TEST(ClassTable, ClassOf_EveryCodePoint_AgreesWithIcuWhereItKnowsIt) {
  int corrected = 0;
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    const auto code = static_cast<UChar32>(c);
    const int8_t type = u_charType(code);
    if (type == U_UNASSIGNED) continue;
    const uint32_t mask = U_MASK(type);
    uint8_t expected = 0;
    if (mask & U_GC_L_MASK) expected |= kLetter;
    if (mask & U_GC_N_MASK) expected |= kNumber;
    if (mask & U_GC_M_MASK) expected |= kMark;
    if (mask & (U_GC_LU_MASK | U_GC_LT_MASK | U_GC_LM_MASK | U_GC_LO_MASK | U_GC_M_MASK)) expected |= kUpper;
    if (mask & (U_GC_LL_MASK | U_GC_LM_MASK | U_GC_LO_MASK | U_GC_M_MASK)) expected |= kLower;
    if (u_isUWhiteSpace(code)) expected |= kSpace;
    if (ClassOf(c) != expected) ++corrected;
  }
  EXPECT_LE(corrected, 8);
}

TEST(DecodeCharacter, DecodeCharacter_EveryScalar_ComesBack) {
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    const std::string text = Utf8(c);
    const Character character = Decode(text);
    ASSERT_EQ(character.code_point, c);
    ASSERT_EQ(character.length, text.size());
    ASSERT_EQ(character.char_class, ClassOf(c));
  }
}

TEST(DecodeCharacter, DecodeCharacter_IllFormed_IsOneByteWithoutClass) {
  for (const std::string text : {"\x80", "\xBF", "\xC0\x80", "\xC1\xBF", "\xC3", "\xC3(", "\xE0\x80\x80", "\xE4\xBD",
                                 "\xED\xA0\x80", "\xF0\x80\x80\x80", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF"}) {
    const Character character = Decode(text);
    EXPECT_EQ(character.code_point, Character::kInvalid) << text;
    EXPECT_EQ(character.length, 1u);
    EXPECT_EQ(character.char_class, 0);
  }
}

TEST(FindInvalidUtf8, FindInvalidUtf8_SeveralBadBytes_NamesTheFirst) {
  EXPECT_EQ(FindInvalidUtf8(""), std::string_view::npos);
  EXPECT_EQ(FindInvalidUtf8("plain ascii, long enough for words"), std::string_view::npos);
  EXPECT_EQ(FindInvalidUtf8("caf\xC3\xA9"), std::string_view::npos);
  EXPECT_EQ(FindInvalidUtf8("0123456789\xFF"), 10u);
  EXPECT_EQ(FindInvalidUtf8("caf\xC3"), 3u);
}

}  // namespace
}  // namespace cairn::corpus
