#include "corpus/bpe/build_tokenizer.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "common/status/reason.h"
#include "corpus/bpe/scanners.h"

namespace cairn::corpus {
namespace {

constexpr char kName[] = "tokenizer.json";

TokenizerFile SmallFile() {
  TokenizerFile file;
  file.vocab = {{"a", 0}, {"b", 1}, {"c", 2}, {"ab", 3}, {"abc", 4}};
  file.merges = {{"a", "b"}, {"ab", "c"}};
  file.pattern = std::string(kGpt2Pattern);
  return file;
}

// Returns all single bytes, each with its value as rank, and then these.
std::vector<std::pair<std::string, uint32_t>> Ranks(const std::vector<std::string>& more = {}) {
  std::vector<std::pair<std::string, uint32_t>> ranks;
  for (int byte = 0; byte < 256; ++byte) ranks.emplace_back(std::string(1, static_cast<char>(byte)), byte);
  for (const std::string& token : more) ranks.emplace_back(token, static_cast<uint32_t>(ranks.size()));
  return ranks;
}

std::vector<uint32_t> Encode(BpeTokenizer::Parts& parts, const std::string& word) {
  parts.model.Finish();
  BpeModel::Scratch scratch;
  std::vector<uint32_t> ids;
  parts.model.Encode(word, scratch, ids);
  return ids;
}

TEST(BuildTokenizerTest, BuildTokenizer_MergesByRank_EncodesByThem) {
  auto parts = BuildTokenizer(SmallFile(), kName);
  ASSERT_TRUE(parts.ok()) << parts.status();
  EXPECT_EQ(parts->vocab_size, 5);
  EXPECT_EQ(Encode(*parts, "abcab"), (std::vector<uint32_t>{4, 3}));
}

TEST(BuildTokenizerTest, BuildTokenizer_AnAddedTokenBeyondTheVocabulary_CountsForItsSize) {
  TokenizerFile file = SmallFile();
  file.added.push_back({.content = "<|end|>", .id = 9});
  const auto parts = BuildTokenizer(file, kName);
  ASSERT_TRUE(parts.ok()) << parts.status();
  EXPECT_EQ(parts->vocab_size, 10);
}

TEST(BuildTokenizerTest, BuildTokenizer_WhatTheVocabularyLacks_IsRefused) {
  TokenizerFile merge = SmallFile();
  merge.merges.emplace_back("c", "c");
  EXPECT_TRUE(HasReason(BuildTokenizer(merge, kName).status(), Reason::kBadTokenizer));
  TokenizerFile unknown = SmallFile();
  unknown.unknown = "<unk>";
  EXPECT_TRUE(HasReason(BuildTokenizer(unknown, kName).status(), Reason::kBadTokenizer));
  TokenizerFile pattern = SmallFile();
  pattern.pattern = "(";
  EXPECT_TRUE(HasReason(BuildTokenizer(pattern, kName).status(), Reason::kBadPattern));
}

TEST(BuildTokenizerTest, BuildTiktoken_TokensOfSeveralBytes_MergeByTheirRank) {
  auto parts = BuildTiktoken(Ranks({"bc", "ab", "abc"}), {}, std::string(kGpt2Pattern), kName);
  ASSERT_TRUE(parts.ok()) << parts.status();
  EXPECT_EQ(parts->vocab_size, 259);
  EXPECT_EQ(Encode(*parts, "abcx"), (std::vector<uint32_t>{258, 'x'}));
}

TEST(BuildTokenizerTest, BuildTiktoken_AByteIsMissingOrATokenIsThereTwice_IsRefused) {
  auto missing = Ranks();
  missing.pop_back();
  EXPECT_TRUE(HasReason(BuildTiktoken(missing, {}, std::string(kGpt2Pattern), kName).status(), Reason::kBadTokenizer));
  EXPECT_TRUE(HasReason(BuildTiktoken(Ranks({"ab", "ab"}), {}, std::string(kGpt2Pattern), kName).status(),
                        Reason::kBadTokenizer));
}

TEST(BuildTokenizerTest, ToVocabulary_IdsFromZeroOn_HasTokensAndMergesById) {
  TokenizerFile file = SmallFile();
  file.added.push_back({.content = "<|end|>", .id = 5});
  const auto vocabulary = ToVocabulary(file, kName);
  ASSERT_TRUE(vocabulary.ok()) << vocabulary.status();
  ASSERT_EQ(vocabulary->tokens.size(), 6);
  EXPECT_EQ(vocabulary->tokens[3].bytes, "ab");
  EXPECT_TRUE(vocabulary->tokens[5].special);
  EXPECT_EQ(vocabulary->merges, (std::vector<std::pair<uint32_t, uint32_t>>{{0, 1}, {3, 2}}));
}

TEST(BuildTokenizerTest, ToVocabulary_IdsWithAGapOrBeyondTheEnd_IsRefused) {
  TokenizerFile gap = SmallFile();
  gap.added.push_back({.content = "<|end|>", .id = 6});
  EXPECT_TRUE(HasReason(ToVocabulary(gap, kName).status(), Reason::kBadTokenizer));
  TokenizerFile beyond = SmallFile();
  beyond.vocab[4].second = 7;
  EXPECT_TRUE(HasReason(ToVocabulary(beyond, kName).status(), Reason::kBadTokenizer));
  TokenizerFile text = SmallFile();
  text.vocab.emplace_back("\xe2\x82\xac", 5);  // a euro sign, which no byte is written as
  EXPECT_TRUE(HasReason(ToVocabulary(text, kName).status(), Reason::kBadTokenizer));
}

}  // namespace
}  // namespace cairn::corpus
