#include "coordinator/job/order_news.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace cairn {
namespace {

v1::SaveOrder Save(v1::Phase::Value action, const std::string& plan = "p", uint32_t attempt = 0) {
  v1::SaveOrder order;
  order.set_step(7);
  order.set_phase(action);
  order.set_plan_digest(plan);
  order.set_attempt(attempt);
  return order;
}

v1::SynchronizeAgentResponse Orders(const v1::SaveOrder& save) {
  v1::SynchronizeAgentResponse orders;
  *orders.add_saves() = save;
  return orders;
}

// A rank whose save stages by `plan`; empty while it has begun only.
v1::AgentState Rank(const std::string& plan) {
  v1::AgentState state;
  v1::SaveState& save = *state.add_saves();
  save.set_step(7);
  save.set_plan_digest(plan);
  return state;
}

// Returns whether an agent that was told nothing has to hear of it at once.
bool IsNews(const v1::SynchronizeAgentResponse& orders, const v1::AgentState& state = {}) {
  return NewsIn(orders, state) != NewsIn({}, state);
}

TEST(OrderNewsTest, SaveOrders_OnlyThoseThatAreActedUpon_AreNews) {
  EXPECT_FALSE(IsNews(Orders(Save(v1::Phase::WAITING))));
  EXPECT_TRUE(IsNews(Orders(Save(v1::Phase::WAITING, "p", 1)))) << "the agent tells the attempt from then on";
  EXPECT_TRUE(IsNews(Orders(Save(v1::Phase::STAGING)), Rank("")));
  EXPECT_TRUE(IsNews(Orders(Save(v1::Phase::STAGING)), Rank("another")));
  EXPECT_FALSE(IsNews(Orders(Save(v1::Phase::STAGING)), Rank("p")));
  for (const auto action : {v1::Phase::WRITING, v1::Phase::ABORTING, v1::Phase::COMMITTED}) {
    EXPECT_TRUE(IsNews(Orders(Save(action)), Rank("p")));
  }
  v1::SaveOrder stalled = Save(v1::Phase::WAITING);
  stalled.mutable_stalled()->set_code(14);
  EXPECT_TRUE(IsNews(Orders(stalled)));
  v1::SaveOrder requested = Save(v1::Phase::WAITING);
  requested.set_request_id("r");
  EXPECT_TRUE(IsNews(Orders(requested)));
}

TEST(OrderNewsTest, OtherOrders_AreNewsOnceEach) {
  v1::SynchronizeAgentResponse orders;
  orders.set_current_plan_digest("p");
  EXPECT_TRUE(IsNews(orders));
  v1::SynchronizeAgentResponse layouts;
  layouts.add_wanted_layouts("a");
  EXPECT_TRUE(IsNews(layouts));
  v1::SynchronizeAgentResponse armed;
  armed.mutable_arm()->set_number(1);
  EXPECT_TRUE(IsNews(armed));
  v1::SynchronizeAgentResponse group;
  group.add_groups()->set_number(1);
  EXPECT_TRUE(IsNews(group));
  v1::SynchronizeAgentResponse load;
  load.add_loads()->set_phase(v1::Phase::WAITING);
  EXPECT_FALSE(IsNews(load));
  load.mutable_loads(0)->set_phase(v1::Phase::READING);
  EXPECT_TRUE(IsNews(load));
}

TEST(OrderNewsTest, OrdersAfterACallOfPrepare_AreNews) {
  v1::AgentState state;
  const auto before = NewsIn({}, state);
  state.mutable_trainer()->set_prepare_calls(1);
  EXPECT_NE(NewsIn({}, state), before) << "the agent waits to hear that its call is known";
}

TEST(OrderNewsTest, TwoOrders_TheNewsOfOneIsAmongThem) {
  v1::SynchronizeAgentResponse orders = Orders(Save(v1::Phase::WRITING));
  const auto one = NewsIn(orders, {});
  orders.add_wanted_layouts("a");
  const auto both = NewsIn(orders, {});
  EXPECT_TRUE(std::includes(both.begin(), both.end(), one.begin(), one.end()));
  EXPECT_EQ(both.size(), one.size() + 1);
}

}  // namespace
}  // namespace cairn
