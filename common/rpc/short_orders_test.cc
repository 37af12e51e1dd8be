#include "common/rpc/short_orders.h"

#include <gtest/gtest.h>

#include <string>

#include "common/format/checkpoint_path.h"

namespace cairn {
namespace {

const std::string kPlan(32, 'p');

v1::SynchronizeAgentResponse Orders(v1::Phase::Value action) {
  v1::SynchronizeAgentResponse orders;
  orders.set_current_plan_digest(kPlan);
  v1::SaveOrder& order = *orders.add_saves();
  order.set_step(100);
  order.set_phase(action);
  order.set_attempt(2);
  order.set_attempt_nonce(77);
  order.set_plan_digest(kPlan);
  order.set_directory(AttemptDirectory("demo", 100, 2));
  return orders;
}

TEST(ShortOrdersTest, AnOrderToWrite_ComesBackWhole) {
  const v1::SynchronizeAgentResponse whole = Orders(v1::Phase::WRITING);
  for (const bool same_plan : {false, true}) {
    v1::SynchronizeAgentResponse orders = whole;
    ShortenOrders("demo", same_plan, orders);
    EXPECT_LT(orders.ByteSizeLong(), same_plan ? 26u : 60u);
    CompleteOrders("demo", same_plan ? kPlan : "another", orders);
    EXPECT_EQ(orders.SerializeAsString(), whole.SerializeAsString());
  }
}

TEST(ShortOrdersTest, AOutcome_ComesBackWithoutItsNonce) {
  v1::SynchronizeAgentResponse whole = Orders(v1::Phase::COMMITTED);
  v1::SynchronizeAgentResponse orders = whole;
  ShortenOrders("demo", true, orders);
  CompleteOrders("demo", kPlan, orders);
  whole.mutable_saves(0)->clear_attempt_nonce();
  EXPECT_EQ(orders.SerializeAsString(), whole.SerializeAsString());
}

TEST(ShortOrdersTest, AnotherPlanOrDirectory_IsNotLeftOut) {
  v1::SynchronizeAgentResponse whole = Orders(v1::Phase::WRITING);
  whole.mutable_saves(0)->set_plan_digest("other");
  whole.mutable_saves(0)->set_directory("elsewhere");
  v1::SynchronizeAgentResponse orders = whole;
  ShortenOrders("demo", false, orders);
  EXPECT_EQ(orders.SerializeAsString(), whole.SerializeAsString());
  CompleteOrders("demo", "", orders);
  EXPECT_EQ(orders.SerializeAsString(), whole.SerializeAsString());
}

TEST(ShortOrdersTest, NoPlan_StaysNone) {
  v1::SynchronizeAgentResponse orders;
  orders.add_saves()->set_phase(v1::Phase::WAITING);
  const std::string whole = orders.SerializeAsString();
  ShortenOrders("demo", true, orders);
  EXPECT_EQ(orders.SerializeAsString(), whole);
  CompleteOrders("demo", kPlan, orders);
  EXPECT_EQ(orders.SerializeAsString(), whole);
}

}  // namespace
}  // namespace cairn
