#include "coordinator/job/wanted_layouts.h"

#include <vector>

#include "coordinator/testing/part_test.h"

namespace cairn {
namespace {

class WantedLayoutsTest : public PartTest {
 protected:
  void Name(int rank, const std::string& layout) {
    wanted_.Apply(Report(rank, Trainer(50, layout)), layouts_, orders_);
    EXPECT_TRUE(wanted_.IsConsistent(members_, layouts_));
  }
  std::vector<std::string> AskedOf(int rank) const {
    v1::SynchronizeAgentResponse response;
    wanted_.AddTo(rank, response);
    return {response.wanted_layouts().begin(), response.wanted_layouts().end()};
  }

  OrderBook orders_;
  WantedLayouts wanted_;
};

TEST_F(WantedLayoutsTest, Apply_SeveralRanksNameALayout_TheFirstIsAsked) {
  RegisterAll(3);
  Name(2, "a");
  EXPECT_EQ(AskedOf(2), std::vector<std::string>{"a"});
  Name(1, "a");
  EXPECT_EQ(AskedOf(1), std::vector<std::string>{"a"});
  EXPECT_TRUE(AskedOf(2).empty());
  EXPECT_EQ(orders_.TakeWoken().ranks, std::vector<int>{2}) << "its orders have changed by another's report";
  Name(1, "b");
  EXPECT_EQ(AskedOf(2), std::vector<std::string>{"a"}) << "it is the only one that still names it";
  EXPECT_EQ(orders_.TakeWoken().ranks, std::vector<int>{2});
}

TEST_F(WantedLayoutsTest, OnLost_RankThatWasAsked_TheNextIsAsked) {
  RegisterAll(2);
  Name(0, "a");
  Name(1, "a");
  members_.Remove(0);
  wanted_.OnLost(0, orders_);
  EXPECT_EQ(AskedOf(1), std::vector<std::string>{"a"});
  EXPECT_EQ(orders_.TakeWoken().ranks, std::vector<int>{1});
  EXPECT_TRUE(wanted_.IsConsistent(members_, layouts_));
}

TEST_F(WantedLayoutsTest, OnLayout_Missing_IsAskedForNoMore) {
  RegisterAll(1);
  Name(0, "a");
  orders_.TakeWoken();
  layouts_.Add("a", 1);
  EXPECT_FALSE(wanted_.IsConsistent(members_, layouts_)) << "the check sees what was not told";
  EXPECT_TRUE(wanted_.OnLayout("a", orders_));
  EXPECT_TRUE(AskedOf(0).empty());
  EXPECT_TRUE(wanted_.empty());
  EXPECT_EQ(orders_.TakeWoken().ranks, std::vector<int>{0});
  EXPECT_FALSE(wanted_.OnLayout("a", orders_));
}

}  // namespace
}  // namespace cairn
