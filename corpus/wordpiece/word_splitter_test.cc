#include "corpus/wordpiece/word_splitter.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace cairn::corpus {
namespace {

using Words = std::vector<std::string>;

Words SplitOf(BertDialect dialect, bool lower_case, std::string_view text) {
  WordSplitter splitter(dialect, lower_case);
  Words words;
  for (const WordSplitter::Word& word : splitter.Split(text)) words.emplace_back(splitter.TextOf(word));
  return words;
}
Words Fast(std::string_view text) { return SplitOf(BertDialect::kFast, false, text); }
Words FastLower(std::string_view text) { return SplitOf(BertDialect::kFast, true, text); }
Words LegacyLower(std::string_view text) { return SplitOf(BertDialect::kLegacy, true, text); }

TEST(WordSplitterTest, Split_BlanksAndPunctuation_EndWords) {
  EXPECT_EQ(Fast(" Hello,  world!\t\r\n"), (Words{"Hello", ",", "world", "!"}));
  EXPECT_EQ(Fast("a\u2019b \u00A0c\u3000d"), (Words{"a", "\u2019", "b", "c", "d"}));
  EXPECT_EQ(Fast(""), Words{});
}

TEST(WordSplitterTest, Split_Controls_VanishBeforeBlanksAreSeen) {
  EXPECT_EQ(Fast("a\vb\fc\u0085d"), Words{"abcd"});
  EXPECT_EQ(Fast(std::string_view("a\0b\uFFFDc", 7)), Words{"abc"});
  EXPECT_EQ(Fast("a\u2028b\u2029c"), (Words{"a", "b", "c"}));
}

TEST(WordSplitterTest, Split_Ideographs_StandAlone) {
  EXPECT_EQ(Fast("ab\u4E2D\u6587cd"), (Words{"ab", "\u4E2D", "\u6587", "cd"}));
  EXPECT_EQ(FastLower("\uF900"), Words{"\u8C48"});  // it decomposes after the blanks were set
}

TEST(WordSplitterTest, Split_OneBlockOfIdeographs_DependsOnTheDialect) {
  EXPECT_EQ(SplitOf(BertDialect::kFast, false, "\U0002B820\U0002B91F").size(), 1u);
  EXPECT_EQ(SplitOf(BertDialect::kLegacy, false, "\U0002B820\U0002B91F").size(), 2u);
}

TEST(WordSplitterTest, Split_LowerCase_StripsAccents) {
  EXPECT_EQ(FastLower("\u00C9COLE na\u00EFve \u0130stanbul"), (Words{"ecole", "naive", "istanbul"}));
  EXPECT_EQ(FastLower("e\u0301"), Words{"e"});
  EXPECT_EQ(FastLower("a\u2260b"), (Words{"a", "=", "b"}));  // U+2260 is = and a mark
  EXPECT_EQ(Fast("\u00C9COLE"), Words{"\u00C9COLE"});
}

TEST(WordSplitterTest, Split_Hangul_BecomesJamo) {
  EXPECT_EQ(FastLower("\uD55C\uAC00"), Words{"\u1112\u1161\u11AB\u1100\u1161"});
  EXPECT_EQ(Fast("\uD55C"), Words{"\uD55C"});
  WordSplitter splitter(BertDialect::kFast, true);
  EXPECT_EQ(splitter.Split("\uD55C")[0].scalars, 3u);
}

TEST(WordSplitterTest, Split_FinalSigma_IsLegacyOnly) {
  EXPECT_EQ(FastLower("\u039F\u0394\u039F\u03A3"), Words{"\u03BF\u03B4\u03BF\u03C3"});
  EXPECT_EQ(LegacyLower("\u039F\u0394\u039F\u03A3"), Words{"\u03BF\u03B4\u03BF\u03C2"});
  EXPECT_EQ(LegacyLower("\u03A3"), Words{"\u03C3"});
  EXPECT_EQ(LegacyLower("\u0391\u03A3."), (Words{"\u03B1\u03C2", "."}));  // '.' does not count
  EXPECT_EQ(LegacyLower("\u0391\u03A3.\u0391"), (Words{"\u03B1\u03C3", ".", "\u03B1"}));
  EXPECT_EQ(LegacyLower("\u0391\u03A3 \u0391"), (Words{"\u03B1\u03C2", "\u03B1"}));
}

TEST(WordSplitterTest, Split_MarksThatSurvive_TakeTheirCanonicalOrder) {
  // U+302E has class 224, U+1D16D 226 and U+1D165 216. U+0300 (230) between them vanishes; a starter separates them.
  EXPECT_EQ(FastLower("a\u302E\u0300\U0001D165"), Words{"a\U0001D165\u302E"});
  EXPECT_EQ(FastLower("a\u302Eb\U0001D165"), Words{"a\u302Eb\U0001D165"});
  EXPECT_EQ(FastLower("a\u302E\u034F\U0001D165"), Words{"a\u302E\U0001D165"});  // a stripped mark of class 0
  EXPECT_EQ(Fast("a\u302E\U0001D165"), Words{"a\u302E\U0001D165"});
}

}  // namespace
}  // namespace cairn::corpus
