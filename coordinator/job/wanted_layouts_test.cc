#include "coordinator/job/wanted_layouts.h"

#include <vector>

#include "coordinator/testing/part_test.h"

namespace cairn {
namespace {

class WantedLayoutsTest : public PartTest {
 protected:
  // Returns the other ranks that are asked for other layouts now.
  std::vector<int> Name(int rank, const std::string& layout) {
    return wanted_.Apply(Report(rank, Trainer(50, layout)), layouts_).ranks;
  }
  std::vector<std::string> AskedOf(int rank) const {
    v1::SynchronizeAgentResponse response;
    wanted_.AddTo(rank, response);
    return {response.wanted_layouts().begin(), response.wanted_layouts().end()};
  }

  WantedLayouts wanted_;
};

TEST_F(WantedLayoutsTest, Apply_SeveralRanksNameALayout_TheFirstIsAsked) {
  RegisterAll(3);
  EXPECT_TRUE(Name(2, "a").empty());
  EXPECT_EQ(AskedOf(2), std::vector<std::string>{"a"});
  EXPECT_EQ(Name(1, "a"), std::vector<int>{2}) << "its orders have changed by another's report";
  EXPECT_EQ(AskedOf(1), std::vector<std::string>{"a"});
  EXPECT_TRUE(AskedOf(2).empty());
  EXPECT_EQ(Name(1, "b"), std::vector<int>{2});
  EXPECT_EQ(AskedOf(2), std::vector<std::string>{"a"}) << "it is the only one that still names it";
}

TEST_F(WantedLayoutsTest, OnLost_RankThatWasAsked_TheNextIsAsked) {
  RegisterAll(2);
  Name(0, "a");
  Name(1, "a");
  members_.Remove(0);
  EXPECT_EQ(wanted_.OnLost(0).ranks, std::vector<int>{1});
  EXPECT_EQ(AskedOf(1), std::vector<std::string>{"a"});
}

TEST_F(WantedLayoutsTest, OnLayout_Missing_IsAskedForNoMore) {
  RegisterAll(1);
  Name(0, "a");
  layouts_.Add("a", 1);
  EXPECT_EQ(wanted_.OnLayout("a").ranks, std::vector<int>{0});
  EXPECT_TRUE(AskedOf(0).empty());
  EXPECT_TRUE(wanted_.empty());
  EXPECT_TRUE(wanted_.OnLayout("a").empty());
}

}  // namespace
}  // namespace cairn
