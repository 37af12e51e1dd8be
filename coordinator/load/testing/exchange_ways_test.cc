#include "coordinator/load/testing/exchange_ways.h"

#include <gtest/gtest.h>

#include <string>

namespace cairn {
namespace {

v1::LoadOrder OrderOf(v1::Exchange::Way way, uint64_t group = 0) {
  v1::LoadOrder order;
  order.set_transfer_token("token");
  order.mutable_exchange()->set_way(way);
  order.mutable_exchange()->set_group(group);
  return order;
}

TEST(ExchangeWaysTest, Take_OneCoordinatorTellsTwoWays_IsFound) {
  ExchangeWays ways;
  EXPECT_EQ(ways.Take(0, 1, OrderOf(v1::Exchange::GROUP, 5)), "");
  EXPECT_EQ(ways.Take(1, 1, OrderOf(v1::Exchange::UNDECIDED)), "");
  EXPECT_EQ(ways.Take(1, 1, OrderOf(v1::Exchange::GROUP, 6)), "ranks 1 and 0 go different ways");
  EXPECT_EQ(ways.Take(2, 1, OrderOf(v1::Exchange::HOST)), "ranks 2 and 0 go different ways");
}

// Then the load ends with COORDINATOR_RESTARTED, which no single order shows.
TEST(ExchangeWaysTest, Take_TwoCoordinatorsTellTwoWays_IsNoContradiction) {
  ExchangeWays ways;
  EXPECT_EQ(ways.Take(0, 1, OrderOf(v1::Exchange::GROUP, 5)), "");
  EXPECT_EQ(ways.Take(1, 2, OrderOf(v1::Exchange::HOST)), "");
}

TEST(ExchangeWaysTest, Take_SecondDecision_ChangesNothing) {
  ExchangeWays ways;
  EXPECT_EQ(ways.WayOf("token", 0).way(), v1::Exchange::WAY_UNSPECIFIED);
  EXPECT_EQ(ways.Take(0, 1, OrderOf(v1::Exchange::GROUP, 5)), "");
  EXPECT_EQ(ways.Take(0, 2, OrderOf(v1::Exchange::HOST)), "");
  EXPECT_EQ(ways.WayOf("token", 0).group(), 5u);
}

TEST(ExchangeWaysTest, AllGoBy_OneRankDoesNot_IsFalse) {
  ExchangeWays ways;
  EXPECT_EQ(ways.Take(0, 1, OrderOf(v1::Exchange::GROUP, 5)), "");
  EXPECT_FALSE(ways.AllGoBy(5, "token", 2));
  EXPECT_EQ(ways.Take(1, 1, OrderOf(v1::Exchange::GROUP, 5)), "");
  EXPECT_TRUE(ways.AllGoBy(5, "token", 2));
}

TEST(ExchangeWaysTest, TakeId_AnotherIdOfAGroup_IsFound) {
  ExchangeWays ways;
  v1::GroupOrder order;
  order.set_number(5);
  order.set_unique_id("one");
  EXPECT_EQ(ways.TakeId(order), "");
  EXPECT_EQ(ways.TakeId(order), "");
  order.set_unique_id("two");
  EXPECT_EQ(ways.TakeId(order), "a group has two ids");
}

}  // namespace
}  // namespace cairn
