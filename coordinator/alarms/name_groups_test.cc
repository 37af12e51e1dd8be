#include "coordinator/alarms/name_groups.h"

#include <gtest/gtest.h>

namespace cairn {
namespace {

TEST(NameGroupsTest, Groups) {
  EXPECT_EQ(NameGroups({"a.1", "a.2", "head"}), "a.* (2), head");
  EXPECT_EQ(NameGroups({"a", "b", "c", "d", "e", "f"}), "a, b, c, d and 2 more kinds");
}

TEST(NameGroupsTest, Ranks) {
  EXPECT_EQ(RankNames({3}), "rank 3");
  EXPECT_EQ(RankNames({0, 1, 2, 3, 4, 5, 6, 7}), "ranks 0, 1, 2, 3, 4, 5, 6, 7");
  EXPECT_EQ(RankNames({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}), "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 2 more");
}

}  // namespace
}  // namespace cairn
