#include "corpus/pipeline/word_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/status/reason.h"
#include "corpus/pipeline/unigram.h"

namespace cairn::corpus {
namespace {

using ::testing::ElementsAre;

std::vector<uint32_t> Encode(const WordModel& model, std::string_view word) {
  WordScratch scratch;
  std::vector<uint32_t> ids;
  EXPECT_TRUE(model.Encode(word, scratch, ids).ok()) << word;
  return ids;
}

void ExpectUnknown(const WordModel& model, std::string_view word) {
  WordScratch scratch;
  std::vector<uint32_t> ids;
  const absl::Status status = model.Encode(word, scratch, ids);
  EXPECT_TRUE(HasReason(status, Reason::kBadTokenizer)) << status;
  EXPECT_TRUE(ids.empty());
}

TEST(WordPieceTest, Encode_TakesTheLongestPieces) {
  const TokenMap vocab = {{"[UNK]", 0}, {"un", 1}, {"##aff", 2}, {"##able", 3}, {"##a", 4}};
  const auto model = WordPieceModel(vocab, {.unknown = 0, .prefix = "##", .max_characters = 9});
  EXPECT_THAT(Encode(*model, "unaffable"), ElementsAre(1, 2, 3));
  EXPECT_THAT(Encode(*model, "unx"), ElementsAre(0));
  EXPECT_THAT(Encode(*model, "unaffaaaaa"), ElementsAre(0));  // ten characters
  ExpectUnknown(*WordPieceModel(vocab, {.unknown = {}, .prefix = "##"}), "unx");
}

TEST(WordLevelTest, Encode_TakesWholeWords) {
  const TokenMap vocab = {{"[UNK]", 0}, {"a", 1}};
  EXPECT_THAT(Encode(*WordLevelModel(vocab, 0), "a"), ElementsAre(1));
  EXPECT_THAT(Encode(*WordLevelModel(vocab, 0), "aa"), ElementsAre(0));
  ExpectUnknown(*WordLevelModel(vocab, {}), "aa");
}

TEST(UnigramTest, Encode_TakesTheGreatestSum) {
  UnigramRules rules;
  rules.vocab = {{"<unk>", 0}, {"a", -1}, {"b", -1}, {"ab", -1.5}, {"abc", -9}};
  rules.unknown = 0;
  const auto model = UnigramModel(rules);
  EXPECT_THAT(Encode(*model, "abab"), ElementsAre(3, 3));
  EXPECT_THAT(Encode(*model, "ba"), ElementsAre(2, 1));
  EXPECT_THAT(Encode(*model, "abc"), ElementsAre(4));
  EXPECT_THAT(Encode(*model, "aéxb"), ElementsAre(1, 0, 2));  // unknown characters in a row are one
}

TEST(UnigramTest, Encode_ByteFallback_WritesTheBytesOfWhatIsUnknown) {
  UnigramRules rules;
  rules.vocab = {{"<unk>", 0}, {"a", -1}, {"<0xC3>", -20}, {"<0xA9>", -20}};
  rules.unknown = 0;
  rules.byte_fallback = true;
  const auto model = UnigramModel(rules);
  EXPECT_THAT(Encode(*model, "aé"), ElementsAre(1, 2, 3));
  EXPECT_THAT(Encode(*model, "ax"), ElementsAre(1, 0));
}

TEST(UnigramTest, Encode_NothingStandsForWhatIsUnknown_IsAnError) {
  UnigramRules rules;
  rules.vocab = {{"a", -1}};
  ExpectUnknown(*UnigramModel(rules), "ab");
}

BpeModel Characters(bool byte_fallback, bool fuse) {
  BpeModel model;
  model.set_characters("", "", byte_fallback);
  uint32_t id = 0;
  for (const char* token : {"<unk>", "a", "b", "ab", "▁", "▁a"}) model.AddToken(token, id++);
  model.AddMerge(1, 2, 0, 3);
  model.AddMerge(4, 1, 1, 5);
  model.set_unknown(0, fuse);
  return model;
}

TEST(BpeTest, Encode_Characters_MergeAndUnknownOnesFuse) {
  const auto fused = BpeWordModel(Characters(false, true), false);
  EXPECT_THAT(Encode(*fused, "▁ab▁a"), ElementsAre(4, 3, 5));
  EXPECT_THAT(Encode(*fused, "aéxb"), ElementsAre(1, 0, 2));
  EXPECT_THAT(Encode(*BpeWordModel(Characters(false, false), false), "aéxb"), ElementsAre(1, 0, 0, 2));
}

TEST(BpeTest, PieceEnd_Characters_CutsBeforeABlankThatNothingJoins) {
  const std::string word = "abab▁abab";
  EXPECT_EQ(BpeWordModel(Characters(false, false), false)->PieceEnd(word, 0), 4u);
  EXPECT_EQ(BpeWordModel(Characters(false, true), false)->PieceEnd(word, 0), word.size());  // unknown ones could fuse
}

}  // namespace
}  // namespace cairn::corpus
