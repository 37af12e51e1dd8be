#include "coordinator/alarms/name_groups.h"

#include <gtest/gtest.h>

namespace cairn {
namespace {

TEST(NameGroupsTest, Groups) {
  EXPECT_EQ(NameGroups({"a.1", "a.2", "head"}), "a.* (2), head");
  EXPECT_EQ(NameGroups({"a", "b", "c", "d", "e", "f"}), "a, b, c, d and 2 more kinds");
}

TEST(NameGroupsTest, NamesAndRanks) {
  StateSummary state;
  state.world_size = 3;
  for (const char* name : {"a.1", "a.2", "b"}) {
    StateSummary::Tensor tensor;
    tensor.name = name;
    tensor.first_shard = static_cast<uint32_t>(state.shards.size());
    tensor.shard_count = 1;
    state.tensors.push_back(tensor);
    state.shards.push_back({0, static_cast<int32_t>(state.shards.size())});
  }
  EXPECT_EQ(NamesAndRanks(state, {"a.1", "a.2"}), "a.* (2), written by ranks 0, 1");
  EXPECT_EQ(NamesAndRanks(state, {"a.1", "a.2", "b"}), "a.* (2), b, written by all ranks");
  EXPECT_EQ(NamesAndRanks(state, {"loader"}), "loader");
  state.world_size = 1;
  EXPECT_EQ(NamesAndRanks(state, {"a.1"}), "a.1");
}

TEST(NameGroupsTest, Ranks) {
  EXPECT_EQ(RankNames({3}), "rank 3");
  EXPECT_EQ(RankNames({0, 1, 2, 3, 4, 5, 6, 7}), "ranks 0, 1, 2, 3, 4, 5, 6, 7");
  EXPECT_EQ(RankNames({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}), "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 2 more");
}

}  // namespace
}  // namespace cairn
