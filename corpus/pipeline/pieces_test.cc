#include "corpus/pipeline/pieces.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "corpus/pipeline/text_pattern.h"

namespace cairn::corpus {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> Split(std::string text, SplitBehavior behavior, const FindMatches& find) {
  Pieces pieces{.text = std::move(text), .limit = 0, .from_first = 0, .spans = {}};
  pieces.spans.push_back({0, pieces.text.size()});
  EXPECT_TRUE(SplitSpans(pieces, behavior, find).ok());
  std::vector<std::string> parts;
  for (const Span& span : pieces.spans) parts.emplace_back(pieces.TextOf(span));
  return parts;
}

// The example is that of Hugging Face's documentation.
TEST(SplitSpansTest, EachBehavior_SplitsAsHuggingFaceDoes) {
  const FindMatches hyphen = MatchLiteral("-");
  const char* const text = "the-final--countdown";
  EXPECT_THAT(Split(text, SplitBehavior::kRemoved, hyphen), ElementsAre("the", "final", "countdown"));
  EXPECT_THAT(Split(text, SplitBehavior::kIsolated, hyphen), ElementsAre("the", "-", "final", "-", "-", "countdown"));
  EXPECT_THAT(Split(text, SplitBehavior::kMergedWithPrevious, hyphen), ElementsAre("the-", "final-", "-", "countdown"));
  EXPECT_THAT(Split(text, SplitBehavior::kMergedWithNext, hyphen), ElementsAre("the", "-final", "-", "-countdown"));
  EXPECT_THAT(Split(text, SplitBehavior::kContiguous, hyphen), ElementsAre("the", "-", "final", "--", "countdown"));
}

TEST(SplitSpansTest, EmptyMatches_CutOnceBehindEachCharacter) {
  const auto find = MatchExpression("x*");
  ASSERT_TRUE(find.ok());
  EXPECT_THAT(Split("axxb", SplitBehavior::kIsolated, *find), ElementsAre("a", "xx", "b"));
}

TEST(SplitSpansTest, Characters_AreNotCut) {
  EXPECT_THAT(Split("aéb€", SplitBehavior::kIsolated, MatchCharacters([](char32_t c) { return c > 0x7F; })),
              ElementsAre("a", "é", "b", "€"));
}

TEST(RewriteTest, Finish_CountsWhatStemsFromTheFirstCharacter) {
  Pieces pieces{.text = "éb", .limit = 0, .from_first = 2, .spans = {}};
  Rewrite rewrite(pieces);
  rewrite.Put("__", 0);
  rewrite.Copy(0, 3);
  rewrite.Put("__", 0);
  rewrite.Finish(pieces);
  EXPECT_EQ(pieces.text, "__éb__");
  EXPECT_EQ(pieces.from_first, 4u);
}

}  // namespace
}  // namespace cairn::corpus
