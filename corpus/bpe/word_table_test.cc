#include "corpus/bpe/word_table.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace cairn::corpus {
namespace {

std::map<std::string, uint64_t> Content(const WordTable& table) {
  std::map<std::string, uint64_t> content;
  constexpr size_t kParts = 3;
  for (size_t part = 0; part < kParts; ++part) {
    table.ForEach(part, kParts, [&](std::string_view word, uint64_t count) {
      EXPECT_TRUE(content.emplace(std::string(word), count).second) << "twice: " << word;
    });
  }
  return content;
}

TEST(WordTable, Add_RandomWords_AreCountedAsByAMap) {
  std::mt19937_64 random(1);
  WordTable table;
  std::map<std::string, uint64_t> expected;
  for (int round = 0; round < 200; ++round) {
    std::string text;
    std::vector<uint32_t> ends;
    for (int i = 0; i < 100; ++i) {
      // The lengths are around the longest that fits a slot. The words have NULs, which must not look like padding.
      std::string word(1 + random() % 28, '\0');
      for (char& c : word) c = static_cast<char>(random() % 3);
      if (random() % 50 == 0) word.resize(5000, 'x');
      text += word;
      ends.push_back(static_cast<uint32_t>(text.size()));
      ++expected[word];
    }
    // Memory behind the text may be read but must not matter.
    std::string padded = text + std::string(32, static_cast<char>(round));
    const bool can_read_on = random() % 2 == 0;
    table.AddWords(std::string_view(padded).substr(0, text.size()), 0, ends,
                   padded.data() + (can_read_on ? padded.size() : text.size()));
    table.Flush();
  }
  EXPECT_EQ(Content(table), expected);
}

TEST(WordTable, TakeShared_SeveralTables_LeavesEachWordInOneTable) {
  std::mt19937_64 random(2);
  for (const size_t parts : {1, 2, 5}) {
    std::array<WordTable, 3> tables;
    std::map<std::string, uint64_t> expected;
    for (int i = 0; i < 30000; ++i) {
      // There are so few letters that tables share many words. The lengths are around the longest that fits a slot.
      std::string word(1 + random() % 26, 'a');
      for (char& c : word) c = static_cast<char>('a' + random() % 4 / 3);
      if (i % 3000 == 0) word.assign(3 << 20, static_cast<char>('a' + i / 3000));  // larger than a chunk of the arena
      const uint64_t count = random() >> (30 + random() % 30);
      if (count == 0) continue;
      tables[random() % 3].Add(word, count);
      expected[word] += count;
    }
    for (size_t part = 0; part < parts; ++part) {
      tables[0].TakeShared(part, parts, tables[1]);
      tables[0].TakeShared(part, parts, tables[2]);
      tables[1].TakeShared(part, parts, tables[2]);
    }
    std::map<std::string, uint64_t> content;
    for (const WordTable& table : tables) content.merge(Content(table));
    EXPECT_EQ(content, expected);
    size_t kept = 0;
    for (const WordTable& table : tables) kept += Content(table).size();
    EXPECT_EQ(kept, expected.size()) << "a word is in two tables";
    tables[0].Clear();
    tables[0].Add("again", 2);
    EXPECT_EQ(Content(tables[0]), (std::map<std::string, uint64_t>{{"again", 2}}));
  }
}

}  // namespace
}  // namespace cairn::corpus
