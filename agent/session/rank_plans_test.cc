// Tests what is fetched for saves and loads, through the session that they are part of.
#include "agent/session/rank_plans.h"

#include <gtest/gtest.h>

#include <string>
#include <variant>
#include <vector>

#include "agent/testing/layouts.h"
#include "agent/testing/session_fixture.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

using testing::PeersOf;
using testing::Whole;

using Ranks = std::vector<uint32_t>;
using RankPlansTest = ServedSession;

TEST_F(RankPlansTest, NewPlan_AfterAnother_IsAskedForWithThePartThatIsKnown) {
  StartWriting(7);
  plans_.erase("p2");
  ASSERT_TRUE(Order(7, v1::Phase::WRITING, "p2", 2).ok());
  const auto actions = Serve();
  ASSERT_FALSE(actions.empty());
  const auto* get = std::get_if<action::GetPlan>(&actions[0]);
  ASSERT_NE(get, nullptr);
  EXPECT_EQ(get->digest, "p2");
  EXPECT_EQ(get->known, plans_["p1"]);
}

// A save and a load wait until it is known where the ranks are that they take bytes from.
class RankPlansPeersTest : public SessionFixture {
 protected:
  RankPlansPeersTest() : SessionFixture(testing::MakeLayout({Whole("a", DType::kFloat32, {100})}, {})) {}

  void Orders(v1::SynchronizeAgentResponse orders, uint64_t membership_epoch = 0) {
    State();
    orders.set_coordinator_epoch(5);
    orders.set_membership_epoch(membership_epoch);
    EXPECT_TRUE(session_.OnOrders(orders).ok());
  }
  v1::SynchronizeAgentResponse Write(const std::string& plan, uint32_t attempt = 1) {
    v1::SynchronizeAgentResponse orders;
    v1::SaveOrder& order = *orders.add_saves();
    order.set_step(7);
    order.set_phase(v1::Phase::WRITING);
    order.set_plan_digest(plan);
    order.set_attempt(attempt);
    return orders;
  }
  v1::SynchronizeAgentResponse Read() {
    v1::SynchronizeAgentResponse orders;
    v1::LoadOrder& order = *orders.add_loads();
    order.set_number(1);
    order.set_phase(v1::Phase::READING);
    order.set_plan_digest("r1");
    return orders;
  }
  // A part of a plan by which this rank, 3, takes bytes from ranks 2, 3 and 5.
  std::string ReadPart() {
    v1::ReadPlan plan;
    plan.set_plan_digest("r1");
    plan.set_layout_digest(layout_->digest);
    plan.set_rank(3);
    for (const uint32_t rank : {5, 2, 3, 5}) plan.add_copies()->set_source_rank(rank);
    plan.add_rounds()->add_consumers(6);
    return plan.SerializeAsString();
  }
  void BeginLoad() {
    v1::BeginLoadRequest request;
    request.set_trainer_incarnation(kTrainer);
    request.set_number(1);
    request.mutable_layout()->set_digest(layout_->digest);
    EXPECT_TRUE(session_.Ask(request, now_)->pending());
  }
  // Those of an action that were asked for since the last call.
  template <typename Wanted>
  std::vector<Wanted> Take() {
    std::vector<Wanted> taken;
    for (Action& action : session_.TakeActions()) {
      if (auto* wanted = std::get_if<Wanted>(&action)) taken.push_back(std::move(*wanted));
    }
    return taken;
  }
  Ranks Asked() {
    const auto asked = Take<action::GetPeers>();
    EXPECT_LE(asked.size(), 1u);
    return asked.empty() ? Ranks() : asked[0].ranks;
  }
};

TEST_F(RankPlansPeersTest, Load_WithItsPlan_AsksForItsSourcesAloneAndThenReads) {
  BeginLoad();
  Orders(Read());
  session_.OnPlan("r1", ReadPart());
  EXPECT_EQ(Asked(), Ranks({2, 5})) << "not itself, and not the consumers of its round, who come by themselves";
  EXPECT_EQ(State().loads(0).phase(), v1::Phase::PLANNING);
  session_.OnPeers({2, 5}, PeersOf({2, 5}));
  const auto read = Take<action::StartRead>();
  ASSERT_EQ(read.size(), 1u);
  ASSERT_EQ(read[0].peers.size(), 2u);
  EXPECT_EQ(read[0].peers.at(5).incarnation(), 105u);
  EXPECT_EQ(State().loads(0).phase(), v1::Phase::READING);
}

TEST_F(RankPlansPeersTest, FailedRequest_AfterTheNextOrders_IsRepeated) {
  BeginLoad();
  Orders(Read());
  session_.OnPlan("r1", ReadPart());
  EXPECT_EQ(Asked(), Ranks({2, 5}));
  session_.OnPeers({2, 5}, MakeError(Reason::kCoordinatorUnreachable, "away"));
  EXPECT_TRUE(session_.TakeActions().empty()) << "not at once, again and again";
  Orders(Read());
  EXPECT_EQ(Asked(), Ranks({2, 5}));
}

TEST_F(RankPlansPeersTest, RankThatNobodyHolds_AmongTheSources_DoesNotHoldUpTheLoad) {
  BeginLoad();
  Orders(Read());
  session_.OnPlan("r1", ReadPart());
  Asked();
  session_.OnPeers({2, 5}, PeersOf({2}));
  const auto read = Take<action::StartRead>();
  ASSERT_EQ(read.size(), 1u);
  EXPECT_FALSE(read[0].peers.contains(5)) << "its reader says so by name";
}

TEST_F(RankPlansPeersTest, Answer_OfAnEarlierMembership_IsNotReadBy) {
  BeginLoad();
  Orders(Read(), 1);
  session_.OnPlan("r1", ReadPart());
  Asked();
  Orders(Read(), 2);
  session_.OnPeers({2, 5}, PeersOf({2, 5}, 1));
  EXPECT_EQ(Asked(), Ranks({2, 5})) << "rank 5 may be another process by now";
  session_.OnPeers({2, 5}, PeersOf({2, 5}, 2));
  EXPECT_EQ(Take<action::StartRead>().size(), 1u);
}

TEST_F(RankPlansPeersTest, Save_WhileItIsStaged_AsksOnceInAMembership) {
  const std::string digest = "p1";
  const testing::MovedInShard in = {5, 2, Whole("m", DType::kFloat32, {50})};
  EXPECT_TRUE(BeginSave(kTrainer, 7, 60)->pending());
  Orders(Write(digest));
  session_.OnPlan(digest, testing::MakeMovingPlan(*layout_, 3, {{0, 1}}, digest, {in}, {}).SerializeAsString());
  session_.OnSlab(SlabDescription{1, 1 << 20});
  Orders(Write(digest));
  EXPECT_EQ(Asked(), Ranks({5}));
  const auto begun = BeginSave(kTrainer, 7, 60);
  ASSERT_TRUE(begun.ok() && !begun->pending());
  v1::CommitStagingRequest commit;
  commit.set_trainer_incarnation(kTrainer);
  commit.set_save(begun->save());
  ASSERT_TRUE(session_.Ask(commit, now_).ok());
  EXPECT_TRUE(Take<action::StartWrite>().empty());
  EXPECT_EQ(State().saves(0).phase(), v1::Phase::STAGED);
  session_.OnPeers({5}, PeersOf({5}));
  const auto write = Take<action::StartWrite>();
  ASSERT_EQ(write.size(), 1u);
  EXPECT_EQ(write[0].peers.at(5).incarnation(), 105u);
  session_.saves().OnWriteEnded(begun->save(), v1::WriteResult());
  Orders(Write(digest, 2));
  const auto again = session_.TakeActions();
  ASSERT_EQ(again.size(), 1u);
  EXPECT_TRUE(std::holds_alternative<action::StartWrite>(again[0])) << "it is known";
  session_.saves().OnWriteEnded(begun->save(), v1::WriteResult());
  Orders(Write(digest, 3), 1);
  EXPECT_EQ(Asked(), Ranks({5})) << "the membership has changed";
}

TEST_F(RankPlansPeersTest, Save_ThatTakesNothingFromOthers_AsksForNobody) {
  EXPECT_TRUE(BeginSave(kTrainer, 7, 60)->pending());
  Orders(Write("p1"));
  session_.OnPlan("p1", testing::MakeWritePlan(*layout_, 3, {{0}}, "p1").SerializeAsString());
  session_.OnSlab(SlabDescription{1, 1 << 20});
  session_.TakeActions();
  ASSERT_TRUE(BeginSave(kTrainer, 7, 60).ok());
  const auto actions = session_.TakeActions();
  ASSERT_EQ(actions.size(), 1u);
  EXPECT_TRUE(std::holds_alternative<action::StartWrite>(actions[0]));
}

}  // namespace
}  // namespace cairn
