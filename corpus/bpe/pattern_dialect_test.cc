#include "corpus/bpe/pattern_dialect.h"

#include <gtest/gtest.h>

#include "corpus/bpe/compiled_pattern.h"

namespace cairn::corpus {
namespace {

// Returns the pieces that match, one after the other, joined by '|'.
std::string Matches(const std::string& pattern, std::string_view text) {
  const auto compiled = CompiledPattern::Compile(pattern);
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  if (!compiled.ok()) return "";
  PatternMatcher matcher(**compiled);
  std::string found;
  for (size_t from = 0; from < text.size();) {
    const auto match = matcher.Find(text, from);
    EXPECT_TRUE(match.ok());
    if (!match.ok() || !match->found) break;
    found += std::string(text.substr(match->begin, match->end - match->begin)) + "|";
    from = std::max(match->end, match->begin + 1);
  }
  return found;
}

// The expectations were checked with tokenizers 0.23 (tests/corpus/test_bpe_encode.py compares with the package
// itself).
TEST(PatternDialect, Translate_Sets_AreThoseOfHuggingFace) {
  EXPECT_EQ(Matches("\\w+", "नि_1 ²½-é"), "नि_1|²½|é|");
  EXPECT_EQ(Matches("\\W+", "a, b"), ", |");
  EXPECT_EQ(Matches("\\s+", "a\xE1\xA0\x8E\xC2\x85\x62"), "\xC2\x85|");
  EXPECT_EQ(Matches("\\h+", "xAf0g \t"), "Af0|");
  EXPECT_EQ(Matches("[^\\W\\d]+", "ab12cd"), "ab|cd|");
  EXPECT_EQ(Matches("[\\W_]+", "ab_ -c"), "_ -|");
  EXPECT_EQ(Matches("नि\\b", "निनि"), "नि|");
  EXPECT_EQ(Matches("a\\B.", "a ab"), "ab|");
}

TEST(PatternDialect, Translate_Classes_NestAndIntersect) {
  EXPECT_EQ(Matches("[a-f&&[^c]]+", "abcd"), "ab|d|");
  EXPECT_EQ(Matches("[a[xy]]+", "aXxyb"), "a|xy|");
  EXPECT_EQ(Matches("[^a[xy]]+", "aXxyb"), "X|b|");
  EXPECT_EQ(Matches("[^a-f&&[^c]]+", "abcdg"), "c|g|");
  EXPECT_EQ(Matches("[\\]\\[]+", "a[]b"), "[]|");
  EXPECT_EQ(Matches("[[:digit:]x]+", "a1x"), "1x|");
  EXPECT_EQ(Matches("[[:punct:]]+|[[:^alpha:]]", "a+!2"), "+!|2|");
}

TEST(PatternDialect, Translate_Scripts_HaveTheirOwnCharacters) {
  EXPECT_EQ(Matches("\\p{Han}+", "中、文"), "中|文|");
  EXPECT_EQ(Matches("[\\P{Han}]+", "中、文"), "、|");
  EXPECT_EQ(Matches("\\p{^Han}+", "中、文"), "、|");
  EXPECT_EQ(Matches("[^\\p{^Han}x]+", "中x、文"), "中|文|");
}

TEST(PatternDialect, Translate_FlagsAnchorsAndIntervals_MeanTheSame) {
  EXPECT_EQ(Matches("a.b", "a\nb"), "");
  EXPECT_EQ(Matches("(?m)a.b", "a\nb"), "a\nb|");
  EXPECT_EQ(Matches("(?mi:A.)b", "a\nb"), "a\nb|");
  EXPECT_EQ(Matches("^.", "ab\ncd"), "a|c|");
  EXPECT_EQ(Matches(".$", "ab\ncd"), "b|d|");
  EXPECT_EQ(Matches("\\p{N}{1,3}+", "1234567"), "1234567|");
  EXPECT_EQ(Matches("(?:ab){2}+", "abababab"), "abababab|");
  EXPECT_EQ(Matches("a{,x", "a{,x"), "a{,x|");
}

TEST(PatternDialect, Translate_PublishedExpressions_StayAsTheyAreButForSpace) {
  EXPECT_EQ(ToPcre2("'s| ?\\p{L}+| ?[^\\p{L}\\p{N}]+|(?i:'LL)|\\x{20}{2,}"),
            "'s| ?\\p{L}+| ?[^\\p{L}\\p{N}]+|(?i:'LL)|\\x{20}{2,}");
  EXPECT_EQ(ToPcre2("\\s+(?!\\S)|[^\\s]"), "[\\p{White_Space}]+(?![^\\p{White_Space}])|[^\\p{White_Space}]");
}

// PCRE2 reports what is wrong.
TEST(PatternDialect, Translate_Mistakes_AreRefused) {
  const std::string deep(10000, '[');
  for (const std::string& pattern :
       {std::string("["), std::string("[a"), std::string("(a"), std::string("a)"), std::string("\\"), deep}) {
    EXPECT_FALSE(CompiledPattern::Compile(pattern).ok()) << pattern.substr(0, 20);
  }
}

}  // namespace
}  // namespace cairn::corpus
