#include "common/base/rank_table.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

namespace cairn {
namespace {

TEST(RankTableTest, Resize_AHugeWorld_KeepsMemoryForNoRank) {
  RankTable<int> table;
  table.resize(1 << 17);
  EXPECT_EQ(table.size(), size_t{1} << 17);
  EXPECT_EQ(table.kept(), 0u);
  EXPECT_EQ(table[1 << 16], 0);
  EXPECT_EQ(table.kept(), 0u) << "to look is no change";
}

TEST(RankTableTest, At_OneRankOfAHugeWorld_KeepsOnePage) {
  RankTable<int> table;
  table.At((1 << 17) - 1) = 7;
  EXPECT_EQ(table.size(), size_t{1} << 17);
  EXPECT_EQ(table.kept(), RankTable<int>::kPageRanks);
  EXPECT_EQ(table[(1 << 17) - 1], 7);
  EXPECT_EQ(table[0], 0);
}

TEST(RankTableTest, Resize_SmallerAndLargerAgain_ForgetsTheRanksBetween) {
  RankTable<int> table;
  table.At(10) = 1;
  table.At(11) = 2;
  table.At(200) = 3;
  table.resize(11);
  table.resize(300);
  EXPECT_EQ(table[10], 1);
  EXPECT_EQ(table[11], 0);
  EXPECT_EQ(table[200], 0);
}

TEST(RankTableTest, RandomChanges_AreThoseOfAMap) {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    std::minstd_rand random(seed + 1);
    RankTable<int> table;
    std::map<size_t, int> expected;
    size_t size = 0;
    for (int i = 0; i < 200; ++i) {
      const size_t rank = random() % 1000;
      if (random() % 10 == 0) {
        table.resize(size = rank);
        expected.erase(expected.lower_bound(rank), expected.end());
      } else {
        table.At(rank) = expected[rank] = static_cast<int>(random());
        size = std::max(size, rank + 1);
      }
    }
    ASSERT_EQ(table.size(), size) << "seed " << seed;
    size_t at = 0;
    for (const int value : table) {
      const auto found = expected.find(at++);
      ASSERT_EQ(value, found == expected.end() ? 0 : found->second) << "seed " << seed << " rank " << at - 1;
    }
    EXPECT_EQ(at, size);
    size_t kept = 0;
    table.ChangeKept([&](int& value) {
      ++kept;
      value = 5;
    });
    EXPECT_LE(kept, table.kept());
    for (const auto& [rank, value] : expected) ASSERT_EQ(table[rank], 5) << "seed " << seed;
  }
}

}  // namespace
}  // namespace cairn
