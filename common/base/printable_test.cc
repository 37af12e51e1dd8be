#include "common/base/printable.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <iterator>
#include <random>
#include <string>

namespace cairn {
namespace {

// Encodes any number below 2^21 by the bit patterns of UTF-8, also those that are no character.
std::string Encoded(uint32_t code) {
  if (code < 0x80) return {static_cast<char>(code)};
  std::string bytes;
  const int tails = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
  const uint32_t mark = tails == 1 ? 0xc0 : tails == 2 ? 0xe0 : 0xf0;
  bytes += static_cast<char>(mark | code >> (6 * tails));
  for (int i = tails - 1; i >= 0; --i) bytes += static_cast<char>(0x80 | (code >> (6 * i) & 0x3f));
  return bytes;
}

TEST(PrintableTest, IsPrintable_EachCodePoint_RefusesControlsTurnsAndWhatIsNone) {
  for (uint32_t code = 0; code < 0x120000; ++code) {
    const bool control = code < 0x20 || (code >= 0x7f && code < 0xa0);
    const bool character = code < 0xd800 || (code >= 0xe000 && code < 0x110000);
    const std::string text = "a" + Encoded(code) + "z";
    const bool turn = (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
    ASSERT_EQ(IsPlainText(text), character && !control) << std::hex << code;
    ASSERT_EQ(IsPrintable(text), character && !control && !turn) << std::hex << code;
    ASSERT_EQ(Printable(text) == text, IsPrintable(text)) << std::hex << code;
  }
}

TEST(PrintableTest, IsPrintable_OverlongAndCutCharacters_RefusesThem) {
  for (const char* text :
       {"\xc0\xaf", "\xc1\xbf", "\xe0\x80\xaf", "\xe0\x9f\xbf", "\xf0\x80\x80\xaf", "\xf0\x8f\xbf\xbf", "\xc3",
        "\xe2\x82", "\xf0\x9f\x98", "\x80", "\xff", "\xf5\x80\x80\x80"}) {
    EXPECT_FALSE(IsPrintable(text));
    EXPECT_FALSE(IsPrintable(std::string("a") + text));
  }
}

TEST(PrintableTest, Printable_WhatATerminalWouldObey_IsSpelled) {
  EXPECT_EQ(Printable("\033[31mred\033[0m"), "\\x1b[31mred\\x1b[0m");
  EXPECT_EQ(Printable("\u009b31m"), "\\xc2\\x9b31m") << "a terminal takes this for ESC [";
  EXPECT_EQ(Printable(std::string("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(Printable("caf\u00e9 \xff"), "caf\u00e9 \\xff");
  EXPECT_EQ(Printable("a\nb\tc\r"), "a\\x0ab\\x09c\\x0d");
  EXPECT_EQ(Printable("a\nb\tc\r", "\n\t"), "a\nb\tc\\x0d");
  EXPECT_EQ(Printable(""), "");
}

TEST(PrintableTest, Printable_WhatTurnsTheDirectionOfText_IsSpelled) {
  EXPECT_EQ(Printable("safe\u202egnp.exe"), "safe\\xe2\\x80\\xaegnp.exe");
  EXPECT_EQ(Printable("\u2066a\u2069\u2028"), "\\xe2\\x81\\xa6a\\xe2\\x81\\xa9\\xe2\\x80\\xa8");
  EXPECT_EQ(Printable("\u05d0\u200f\u20ac"), "\u05d0\u200f\u20ac") << "right-to-left text itself stays";
}

TEST(PrintableTest, PrintableJson_WhatATerminalWouldObey_IsEscapedAsInJson) {
  EXPECT_EQ(PrintableJson("{\n  \"a\u202e\": \"\u009b\x7f\u2067\u20ac\"\n}"),
            "{\n  \"a\\u202e\": \"\\u009b\\u007f\\u2067\u20ac\"\n}");
  EXPECT_EQ(PrintableJson("\xc2"), "\\u00c2") << "what is no UTF-8 is shown byte by byte";
}

TEST(PrintableTest, Printable_AnyBytes_IsPrintable) {
  std::mt19937 random(7);
  for (int round = 0; round < 20'000; ++round) {
    std::string text(random() % 12, '\0');
    for (char& byte : text) byte = static_cast<char>(random());
    const std::string printable = Printable(text);
    ASSERT_TRUE(IsPrintable(printable));
    ASSERT_EQ(printable == text, IsPrintable(text));
    ASSERT_TRUE(IsPrintable(PrintableJson("\"" + printable + "\"")));
  }
}

TEST(PrintableTest, CutText_InTheMidstOfACharacter_LeavesItOut) {
  const std::string text =
      "a\xe2\x82\xac"
      "b\xc3\xa9";  // a, the euro sign, b, e with an accent
  const char* const cuts[] = {"",
                              "a",
                              "a",
                              "a",
                              "a\xe2\x82\xac",
                              "a\xe2\x82\xac"
                              "b",
                              "a\xe2\x82\xac"
                              "b"};
  for (size_t bytes = 0; bytes < std::size(cuts); ++bytes) EXPECT_EQ(CutText(text, bytes), cuts[bytes]) << bytes;
  EXPECT_EQ(CutText(text, text.size()), text);
  EXPECT_EQ(CutText(text, 100), text);
}

}  // namespace
}  // namespace cairn
