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

// Undoes the first hash of a table, so that tests can choose what it gives.
class Unhash {
 public:
  explicit Unhash(int id_bits) : id_bits_(id_bits), mask_((uint64_t{1} << 2 * id_bits) - 1) {}

  std::pair<uint32_t, uint32_t> operator()(uint64_t hash) const {
    uint64_t pair = hash * Inverse(0xD1B54A32D192ED03u) & mask_;
    pair ^= pair >> id_bits_;
    pair = pair * Inverse(0x9E3779B97F4A7C15u) & mask_;
    return {static_cast<uint32_t>(pair >> id_bits_), static_cast<uint32_t>(pair & ((uint64_t{1} << id_bits_) - 1))};
  }

 private:
  static uint64_t Inverse(uint64_t odd) {
    uint64_t inverse = odd;
    for (int i = 0; i < 5; ++i) inverse *= 2 - odd * inverse;
    return inverse;
  }

  int id_bits_;
  uint64_t mask_;
};

// Room for each bucket is only behind that of all others: a hundred thousand of them would be tried for minutes.
TEST(MergeTable, Make_BucketsThatNeedTheSamePlaces_IsGivenUpSoon) {
  constexpr int kIdBits = 19, kSlotBits = 20, kBucketBits = 17;
  constexpr uint32_t kMostId = (1u << kIdBits) - 2;
  const Unhash unhash(kIdBits);
  // The table of no merges has one slot, so all of the hash is in the tag, above the bits of an id and of a rank.
  const auto [left, right] = unhash(123'456'789);
  ASSERT_EQ(TableOf({}, kMostId).AskFor(left, right).tag >> (kIdBits + 1), 123'456'789u) << "the hash is another one";
  std::vector<MergeTable::Merge> merges;
  for (uint64_t bucket = 0; bucket < uint64_t{1} << kBucketBits; ++bucket) {
    for (uint64_t slot = 0; slot < 6; ++slot) {
      const auto [a, b] = unhash(bucket << (2 * kIdBits - kBucketBits) | (bucket & 1) << kSlotBits | slot);
      if (a <= kMostId && b <= kMostId) merges.push_back({a, b, static_cast<uint32_t>(merges.size()), 1});
    }
  }
  EXPECT_TRUE(MergeTable(merges, kMostId).empty());
}

}  // namespace
}  // namespace cairn::corpus
