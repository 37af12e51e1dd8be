#include "corpus/bpe/merge_table.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <utility>
#include <vector>

namespace cairn::corpus {
namespace {

using Pairs = std::map<std::pair<uint32_t, uint32_t>, std::pair<uint32_t, uint32_t>>;  // to (rank, result)

MergeTable TableOf(const Pairs& pairs, uint32_t most_id) {
  std::vector<MergeTable::Merge> merges;
  for (const auto& [pair, merge] : pairs) merges.push_back({pair.first, pair.second, merge.first, merge.second});
  return {merges, most_id};
}

TEST(MergeTable, Find_RandomPairs_AreThereAndNoOthers) {
  std::mt19937_64 random(1);
  for (const size_t count : {size_t{0}, size_t{1}, size_t{9}, size_t{300}, size_t{60'000}}) {
    // With few ids most pairs merge, and with many nearly none.
    for (const uint32_t most_id : {uint32_t{3}, uint32_t{400}, uint32_t{130'000}, uint32_t{1} << 18}) {
      Pairs pairs;
      const auto id = [&] { return static_cast<uint32_t>(random() % (most_id + 1)); };
      for (size_t i = 0; i < count; ++i) pairs[{id(), id()}] = {static_cast<uint32_t>(random() % (count + 1)), id()};
      const MergeTable table = TableOf(pairs, most_id);
      ASSERT_FALSE(table.empty()) << count << " merges of ids up to " << most_id;
      EXPECT_GT(table.no_id(), most_id);
      for (const auto& [pair, merge] : pairs) {
        const uint64_t found = table.Find(pair.first, pair.second);
        ASSERT_EQ(found, uint64_t{merge.first} << table.id_bits() | merge.second);
      }
      for (int i = 0; i < 20'000; ++i) {
        const std::pair<uint32_t, uint32_t> pair = {id(), id()};
        ASSERT_EQ(table.Find(pair.first, pair.second) != MergeTable::kNone, pairs.contains(pair));
        ASSERT_EQ(table.Find(pair.first, table.no_id()), MergeTable::kNone);
        ASSERT_EQ(table.Find(table.no_id(), pair.second), MergeTable::kNone);
      }
    }
  }
}

TEST(MergeTable, Find_OneTokenBesideAllOthers_IsFound) {
  Pairs pairs;
  for (uint32_t id = 0; id < 50'000; ++id) pairs[{7, id}] = {id, id};
  const MergeTable table = TableOf(pairs, 50'000);
  for (uint32_t id = 0; id < 50'000; ++id) ASSERT_EQ(table.Find(7, id), uint64_t{id} << table.id_bits() | id);
  EXPECT_EQ(table.Find(7, 50'000), MergeTable::kNone);
  EXPECT_EQ(table.Find(8, 7), MergeTable::kNone);
}

TEST(MergeTable, Find_EveryPairMerges_IsFound) {
  for (uint32_t most_id = 0; most_id < 40; ++most_id) {
    Pairs pairs;
    uint32_t rank = 0;
    for (uint32_t left = 0; left <= most_id; ++left) {
      for (uint32_t right = 0; right <= most_id; ++right) pairs[{left, right}] = {rank++, left};
    }
    const MergeTable table = TableOf(pairs, most_id);
    ASSERT_FALSE(table.empty()) << most_id;
    for (const auto& [pair, merge] : pairs) {
      ASSERT_EQ(table.Find(pair.first, pair.second), uint64_t{merge.first} << table.id_bits() | merge.second);
    }
  }
}

TEST(MergeTable, Make_IdsTooLargeForASlot_IsEmpty) {
  EXPECT_TRUE(TableOf({{{1, 2}, {0, 3}}}, uint32_t{1} << 24).empty());
}

}  // namespace
}  // namespace cairn::corpus
