#include "corpus/wordpiece/piece_trie.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

namespace cairn::corpus {
namespace {

TEST(PieceTrieTest, Longest_SeveralPiecesFit_TakesTheLongest) {
  PieceTrie trie;
  trie.Add("a", 1);
  trie.Add("abc", 2);
  trie.Add("abcde", 3);
  trie.Add("", 9);
  EXPECT_EQ(trie.Longest("abcd").id, 2u);
  EXPECT_EQ(trie.Longest("abcd").length, 3u);
  EXPECT_EQ(trie.Longest("ab").id, 1u);
  EXPECT_EQ(trie.Longest("x").length, 0u);
  EXPECT_EQ(trie.Longest("").length, 0u);
}

TEST(PieceTrieTest, Longest_EqualPieces_TheLastCounts) {
  PieceTrie trie;
  trie.Add("a", 1);
  trie.Add("a", 7);
  EXPECT_EQ(trie.Longest("a").id, 7u);
}

TEST(PieceTrieTest, Longest_RandomPieces_AgreesWithAMap) {
  std::mt19937 random(7);
  PieceTrie trie;
  std::map<std::string, uint32_t> oracle;
  const auto piece = [&](size_t max) {
    std::string text(1 + random() % max, 0);
    for (char& c : text) c = static_cast<char>("ab\0\xFFz"[random() % 5]);
    return text;
  };
  for (uint32_t id = 0; id < 3000; ++id) {
    const std::string text = piece(9);
    trie.Add(text, id);
    oracle[text] = id;
  }
  for (int i = 0; i < 20000; ++i) {
    const std::string text = piece(12);
    size_t length = text.size();
    while (length > 0 && !oracle.contains(text.substr(0, length))) --length;
    const PieceTrie::Match match = trie.Longest(text);
    ASSERT_EQ(match.length, length);
    if (length > 0) {
      ASSERT_EQ(match.id, oracle[text.substr(0, length)]);
    }
  }
}

}  // namespace
}  // namespace cairn::corpus
