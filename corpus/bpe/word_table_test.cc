#include "corpus/bpe/word_table.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <vector>

namespace cairn::corpus {
namespace {

std::map<std::string, uint64_t> Content(const WordTable& table) {
  std::map<std::string, uint64_t> content;
  table.ForEach([&](std::string_view word, uint64_t count) {
    EXPECT_TRUE(content.emplace(std::string(word), count).second) << "twice: " << word;
  });
  EXPECT_EQ(content.size(), table.size());
  return content;
}

TEST(WordTable, RandomWords_AreCountedAsByAMap) {
  std::mt19937_64 random(1);
  WordTable table;
  std::map<std::string, uint64_t> expected;
  for (int round = 0; round < 200; ++round) {
    std::string text;
    std::vector<uint32_t> ends;
    for (int i = 0; i < 100; ++i) {
      // Lengths around the limit of what a slot holds, with NULs, which must not look like padding.
      std::string word(1 + random() % 20, '\0');
      for (char& c : word) c = static_cast<char>(random() % 3);
      if (random() % 50 == 0) word.resize(5000, 'x');
      text += word;
      ends.push_back(static_cast<uint32_t>(text.size()));
      ++expected[word];
    }
    // Memory behind the text may be read, but must not matter.
    std::string padded = text + std::string(32, static_cast<char>(round));
    const bool can_read_on = random() % 2 == 0;
    table.AddWords(std::string_view(padded).substr(0, text.size()), 0, ends,
                   padded.data() + (can_read_on ? padded.size() : text.size()));
  }
  EXPECT_EQ(Content(table), expected);
}

TEST(WordTable, AddAll_AddsCounts_AndKeepsThemIn64Bits) {
  WordTable a, b;
  const std::string large(3 << 20, 'l');  // larger than a chunk of the arena
  a.Add("one", uint64_t{1} << 40);
  a.Add(large, 1);
  b.Add("one", 2);
  b.Add(large, 2);
  b.Add("sixteen bytes ok", 3);
  a.AddAll(b);
  EXPECT_EQ(Content(a),
            (std::map<std::string, uint64_t>{{"one", (uint64_t{1} << 40) + 2}, {large, 3}, {"sixteen bytes ok", 3}}));
  a.Clear();
  EXPECT_EQ(a.size(), 0u);
}

}  // namespace
}  // namespace cairn::corpus
