#include "corpus/pipeline/word_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <utility>
#include <vector>

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

TEST(BpeTest, PieceEnd_RandomMergesOfCharacters_PiecesHaveTheIdsOfTheWhole) {
  std::mt19937_64 random(5);
  const std::vector<std::string> characters = {"a", "b", "7", ".", ",", "(", "\n", "▁", "é", "ж", "的", "\U0001F600"};
  size_t pieces = 0;
  for (int round = 0; round < 100; ++round) {
    std::vector<std::string> tokens = characters;
    BpeModel model;
    model.set_characters("", "", /*byte_fallback=*/false);
    for (uint32_t rank = 0; rank < 60; ++rank) {
      const size_t left = random() % tokens.size(), right = random() % tokens.size();
      if (tokens[left].size() + tokens[right].size() > 12) continue;
      model.AddMerge(static_cast<uint32_t>(left), static_cast<uint32_t>(right), rank,
                     static_cast<uint32_t>(tokens.size()));
      tokens.push_back(tokens[left] + tokens[right]);
    }
    for (uint32_t id = 0; id < tokens.size(); ++id) model.AddToken(tokens[id], id);
    model.set_unknown(static_cast<uint32_t>(tokens.size()), /*fuse=*/false);
    const auto word_model = BpeWordModel(std::move(model), false);
    std::string word;
    for (int i = 0; i < 100; ++i) word += i % 20 == 7 ? "?" : characters[random() % characters.size()];
    std::vector<uint32_t> ids;
    for (size_t from = 0, end; from < word.size(); from = end) {
      end = word_model->PieceEnd(word, from);
      const std::vector<uint32_t> some = Encode(*word_model, word.substr(from, end - from));
      ids.insert(ids.end(), some.begin(), some.end());
      ++pieces;
    }
    ASSERT_EQ(ids, Encode(*word_model, word)) << word;
  }
  EXPECT_GT(pieces, 500u);
}

TEST(BpeTest, PieceEnd_Characters_CutsBesideSignsAndNotBetweenLetters) {
  const auto model = BpeWordModel(Characters(false, false), false);
  EXPECT_EQ(model->PieceEnd("aaaa, aaaa", 0), 4u);
  EXPECT_EQ(model->PieceEnd("aaaabbbb", 0), 8u);
}

}  // namespace
}  // namespace cairn::corpus
