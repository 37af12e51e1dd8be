#include "corpus/bpe/merge_engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/status/reason.h"

namespace cairn::corpus {
namespace {

using Words = std::map<std::string, uint64_t>;
using Pairs = std::vector<std::pair<std::string, std::string>>;

Pairs PairsOf(const MergeResult& result) {
  Pairs pairs;
  for (const Merge& merge : result.merges) {
    EXPECT_EQ(result.tokens[merge.left] + result.tokens[merge.right], result.tokens[merge.result]);
    pairs.emplace_back(result.tokens[merge.left], result.tokens[merge.right]);
  }
  return pairs;
}

absl::StatusOr<MergeResult> Train(const Words& words, MergeOptions options) {
  // There are one to three shards, because the result must not depend on them.
  options.threads = 1 + static_cast<uint32_t>(words.size() % 3);
  MergeEngine engine(std::move(options));
  size_t shard = 0;
  for (const auto& [word, count] : words) EXPECT_TRUE(engine.AddWord(shard++ % engine.shards(), word, count).ok());
  return engine.Run();
}

Pairs Merges(const Words& words, uint32_t wanted, uint64_t min_frequency = 1, Pairs first = {}) {
  const auto result = Train(words, {.min_frequency = min_frequency, .wanted = wanted, .first = std::move(first)});
  EXPECT_TRUE(result.ok()) << result.status();
  return PairsOf(*result);
}

// Counts every pair anew for every merge, after the `first` ones. What has a `refused` letter does not merge.
Pairs Oracle(const Words& words, uint32_t wanted, uint64_t min_frequency = 1, const Pairs& first = {},
             char refused = 0) {
  std::vector<std::pair<std::vector<std::string>, uint64_t>> texts;
  for (const auto& [word, count] : words) {
    auto& parts = texts.emplace_back(std::vector<std::string>{}, count).first;
    for (const char c : word) parts.emplace_back(1, c);
  }
  Pairs merges;
  while (merges.size() < std::max<size_t>(wanted, first.size())) {
    std::map<std::pair<std::string, std::string>, uint64_t> counts;
    for (const auto& [parts, count] : texts) {
      for (size_t i = 0; i + 1 < parts.size(); ++i) {
        if ((parts[i] + parts[i + 1]).find(refused) == std::string::npos) counts[{parts[i], parts[i + 1]}] += count;
      }
    }
    // The map ascends, so the last of equal ones is the greatest pair.
    const auto best = std::max_element(counts.begin(), counts.end(),
                                       [](const auto& a, const auto& b) { return a.second <= b.second; });
    const bool is_first = merges.size() < first.size();
    if (!is_first && (best == counts.end() || best->second < min_frequency)) break;
    const auto [left, right] = is_first ? first[merges.size()] : best->first;
    merges.emplace_back(left, right);
    for (auto& [parts, count] : texts) {
      std::vector<std::string> merged;
      for (size_t i = 0; i < parts.size(); ++i) {
        if (i + 1 < parts.size() && parts[i] == left && parts[i + 1] == right) {
          merged.push_back(left + right);
          ++i;
        } else {
          merged.push_back(parts[i]);
        }
      }
      parts = std::move(merged);
    }
  }
  return merges;
}

Words RandomWords(std::mt19937_64& random, int letters, int count, int longest) {
  Words words;
  for (int i = 0; i < count; ++i) {
    std::string word;
    for (size_t n = 1 + random() % static_cast<size_t>(longest); n > 0; --n) {
      word += static_cast<char>('a' + random() % static_cast<size_t>(letters));
    }
    words[word] += 1 + random() % 5;
  }
  return words;
}

TEST(MergeEngine, Merge_Ties_GoToTheGreatestBytes) {
  EXPECT_EQ(Merges({{"ab", 2}, {"cd", 2}, {"ce", 2}}, 3), (Pairs{{"c", "e"}, {"c", "d"}, {"a", "b"}}));
  // Bytes compare as unsigned numbers, and a prefix is the smaller one.
  EXPECT_EQ(Merges({{"\x7F"
                     "a",
                     1},
                    {"\x80"
                     "a",
                     1}},
                   1),
            (Pairs{{"\x80", "a"}}));
}

TEST(MergeEngine, Merge_RandomWords_FollowTheOracle) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 300; ++i) {
    const Words words = RandomWords(random, 1 + static_cast<int>(random() % 4), 30, 12);
    const uint64_t minimum = 1 + random() % 3;
    ASSERT_EQ(Merges(words, 60, minimum), Oracle(words, 60, minimum)) << "seed step " << i;
  }
}

// Pairs below a guessed count wait outside of the table. Here the guess is too high, and tokens are made twice.
TEST(MergeEngine, Merge_RarePairs_AreFoundWhenTheyAreWanted) {
  std::mt19937_64 random(5);
  for (int i = 0; i < 200; ++i) {
    Words words = RandomWords(random, 1 + static_cast<int>(random() % 5), 60, 14);
    for (auto& [word, count] : words) count = uint64_t{1} << random() % 14;
    const auto wanted = static_cast<uint32_t>(1 + random() % 59);
    const uint64_t minimum = 1 + random() % 20;
    ASSERT_EQ(Merges(words, wanted, minimum), Oracle(words, wanted, minimum)) << "seed step " << i;
  }
}

// There are enough words for several threads, and tokens with so many places that the threads work at the same time.
TEST(MergeEngine, Merge_AnyNumberOfThreads_GivesTheSame) {
  std::mt19937_64 random(6);
  const Words words = RandomWords(random, 6, 120'000, 40);
  for (const TieBreak tie_break : {TieBreak::kBytes, TieBreak::kHuggingFace}) {
    std::optional<Pairs> expected;
    for (const uint32_t threads : {1, 2, 5}) {
      MergeEngine engine({.tie_break = tie_break, .wanted = 300, .threads = threads});
      ASSERT_EQ(engine.shards(), threads);
      size_t shard = 0;
      for (const auto& [word, count] : words) ASSERT_TRUE(engine.AddWord(shard++ % threads, word, count).ok());
      const auto result = engine.Run();
      ASSERT_TRUE(result.ok()) << result.status();
      if (!expected.has_value()) expected = PairsOf(*result);
      EXPECT_EQ(PairsOf(*result), *expected) << threads << " threads";
    }
    EXPECT_EQ(expected->size(), 300u);
  }
}

TEST(MergeEngine, Merge_CountsBeyond32Bits_AreExact) {
  const uint64_t huge = uint64_t{1} << 40;
  EXPECT_EQ(Merges({{"ab", huge}, {"cd", huge + 1}, {"ce", huge - 1}}, 3), (Pairs{{"c", "d"}, {"a", "b"}, {"c", "e"}}));
  std::mt19937_64 random(2);
  for (int i = 0; i < 50; ++i) {
    Words words = RandomWords(random, 3, 20, 9);
    for (auto& [word, count] : words) count += (random() % 3) * 0xFFFFFFFEu + random() % 3;
    ASSERT_EQ(Merges(words, 40), Oracle(words, 40));
  }
}

TEST(MergeEngine, Merge_FirstMergesAreGiven_GoesOnAsIfItHadMadeThem) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 50; ++i) {
    const Words words = RandomWords(random, 3, 30, 10);
    const Pairs whole = Merges(words, 40);
    const Pairs part(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(whole.size() / 2));
    ASSERT_EQ(Merges(words, 40, 1, part), whole);
  }
  const auto bad = Train({{"ab", 1}}, {.wanted = 3, .first = {{"xy", "z"}}});
  EXPECT_TRUE(HasReason(bad.status(), Reason::kBadTokenizer)) << bad.status();
}

// The first merges come from other words, so they do not fit these: some have no place, some make a token again.
TEST(MergeEngine, Merge_FirstMergesOfOtherWords_AreDoneInTheirOrder) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 200; ++i) {
    const int letters = 1 + static_cast<int>(random() % 4);
    const Pairs first = Oracle(RandomWords(random, letters, 20, 12), 1 + static_cast<uint32_t>(random() % 30));
    const Words words = RandomWords(random, letters, 30, 40);
    const uint64_t minimum = 1 + random() % 3;
    ASSERT_EQ(Merges(words, 60, minimum, first), Oracle(words, 60, minimum, first)) << "seed step " << i;
  }
}

TEST(MergeEngine, Merge_Veto_LeavesThePairApart) {
  std::mt19937_64 random(8);
  for (int i = 0; i < 100; ++i) {
    const Words words = RandomWords(random, 4, 30, 12);
    const auto result = Train(words, {.wanted = 60, .veto = [](std::string_view bytes) -> absl::StatusOr<bool> {
                                        return bytes.find('c') != std::string_view::npos;
                                      }});
    ASSERT_TRUE(result.ok());
    ASSERT_EQ(PairsOf(*result), Oracle(words, 60, 1, {}, 'c')) << "seed step " << i;
  }
  const auto failed =
      Train({{"ab", 1}},
            {.wanted = 1, .veto = [](std::string_view) -> absl::StatusOr<bool> { return absl::InternalError("no"); }});
  EXPECT_EQ(failed.status(), absl::InternalError("no"));
}

TEST(MergeEngine, Merge_HuggingFaceTies_GoToTheSmallestIds) {
  // In the byte-level alphabet a blank (U+0120) comes after every printable character.
  const auto result = Train({{" a", 2}, {"ba", 2}}, {.tie_break = TieBreak::kHuggingFace, .wanted = 2});
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(PairsOf(*result), (Pairs{{"b", "a"}, {" ", "a"}}));
  EXPECT_EQ(result->tokens[0], "!");
}

TEST(MergeEngine, Merge_NothingToMerge_Ends) {
  EXPECT_EQ(Merges({}, 5), Pairs{});
  EXPECT_EQ(Merges({{"a", 9}}, 5), Pairs{});
  EXPECT_EQ(Merges({{"ab", 9}}, 0), Pairs{});
  EXPECT_EQ(Merges({{"ab", 9}, {"cd", 2}}, 5, 3), (Pairs{{"a", "b"}}));
}

TEST(MergeEngine, Merge_Interrupt_EndsIt) {
  std::mt19937_64 random(4);
  MergeOptions options = {.wanted = 500};
  options.progress = [](uint32_t merges) { return merges < 100; };
  const auto result = Train(RandomWords(random, 20, 500, 12), options);
  EXPECT_TRUE(HasReason(result.status(), Reason::kInterrupted)) << result.status();
}

}  // namespace
}  // namespace cairn::corpus
