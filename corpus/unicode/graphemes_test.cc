#include "corpus/unicode/graphemes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unicode/brkiter.h>
#include <unicode/uchar.h>

#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace cairn::corpus {
namespace {

std::vector<std::string> Graphemes(std::string_view text) {
  std::vector<std::string> found;
  for (size_t at = 0, end = 0; at < text.size(); at = end) {
    end = GraphemeEnd(text, at);
    found.emplace_back(text.substr(at, end - at));
  }
  return found;
}

using testing::ElementsAre;

TEST(Graphemes, GraphemeEnd_EachRuleOfTheAnnex) {
  EXPECT_THAT(Graphemes("ab\r\n\n\rc"), ElementsAre("a", "b", "\r\n", "\n", "\r", "c"));
  EXPECT_THAT(Graphemes("e\u0301\u0302x\u0903\u200Dy"), ElementsAre("e\u0301\u0302", "x\u0903\u200D", "y"));
  EXPECT_THAT(Graphemes("\t\u0301\u0301\u200B\u0301"), ElementsAre("\t", "\u0301\u0301", "\u200B", "\u0301"));
  EXPECT_THAT(Graphemes("\u0600a\u0600\u0600\n"), ElementsAre("\u0600a", "\u0600\u0600", "\n"));
  EXPECT_THAT(Graphemes("\u1100\u1160\u11A8\u1100\uAC00\u11A8\uAC01\u1160"),
              ElementsAre("\u1100\u1160\u11A8", "\u1100\uAC00\u11A8", "\uAC01", "\u1160"));
  EXPECT_THAT(Graphemes("\u0915\u094D\u0301\u0937\u0915\u0937\u0915\u094D\u200C\u0937"),
              ElementsAre("\u0915\u094D\u0301\u0937", "\u0915", "\u0937", "\u0915\u094D\u200C", "\u0937"));
  EXPECT_THAT(Graphemes("\u2764\u0301\u200D\u2764\u2764\u200D\u200D\u2764a\u200D\u2764"),
              ElementsAre("\u2764\u0301\u200D\u2764", "\u2764\u200D\u200D", "\u2764", "a\u200D", "\u2764"));
}

TEST(Graphemes, GraphemeEnd_MarksOfUnicode16And17_Extend) {
  for (const std::string mark : {"\U0001611F", "\u1ADB", "\u1ADD", "\u1AE2"}) {
    EXPECT_THAT(Graphemes("e\u0301" + mark + "x"), ElementsAre("e\u0301" + mark, "x"));
  }
}

// ICU has another Unicode version, and before 15.1 no rule for consonants, which are left out. Of other characters that
// it knows, one has changed its kind.
TEST(Graphemes, GraphemeEnd_RandomTextOfOldCharacters_AgreesWithIcu) {
  std::vector<char32_t> known;
  for (char32_t c = 1; c < 0x110000; ++c) {
    const auto value = u_getIntPropertyValue(static_cast<UChar32>(c), UCHAR_GRAPHEME_CLUSTER_BREAK);
    const bool plain =
        value == U_GCB_OTHER && !u_hasBinaryProperty(static_cast<UChar32>(c), UCHAR_EXTENDED_PICTOGRAPHIC);
    if (plain && (c % 61 != 0 || (c >= 0x900 && c < 0x2000) || c >= 0xA000)) continue;
    if ((c >= 0xD800 && c < 0xE000) || c == 0x11A3A || value == U_GCB_REGIONAL_INDICATOR) continue;
    UVersionInfo age;
    u_charAge(static_cast<UChar32>(c), age);
    if (age[0] > 0 && age[0] <= 12) known.push_back(c);
  }
  UErrorCode error = U_ZERO_ERROR;
  const std::unique_ptr<icu::BreakIterator> icu(
      icu::BreakIterator::createCharacterInstance(icu::Locale::getRoot(), error));
  ASSERT_TRUE(U_SUCCESS(error));
  std::mt19937 random(5);
  size_t compared = 0;
  for (int round = 0; round < 20'000; ++round) {
    icu::UnicodeString text;
    for (size_t i = random() % 12 + 1; i > 0; --i) text.append(static_cast<UChar32>(known[random() % known.size()]));
    std::vector<std::string> expected;
    icu->setText(text);
    for (int32_t begin = 0, end = icu->next(); end != icu::BreakIterator::DONE; begin = end, end = icu->next()) {
      text.tempSubStringBetween(begin, end).toUTF8String(expected.emplace_back());
    }
    std::string utf8;
    const std::vector<std::string> found = Graphemes(text.toUTF8String(utf8));
    compared += expected.size();
    EXPECT_EQ(found, expected) << utf8;
  }
  EXPECT_GT(compared, 40'000u);
}

}  // namespace
}  // namespace cairn::corpus
