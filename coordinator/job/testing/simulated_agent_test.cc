#include "coordinator/job/testing/simulated_agent.h"

#include <gtest/gtest.h>

namespace cairn {
namespace {

v1::ArmOrder Order(uint64_t number, v1::ArmOrder::Action action, int64_t step) {
  v1::ArmOrder order;
  order.set_number(number);
  order.set_action(action);
  order.set_step(step);
  return order;
}

TEST(SimulatedAgentTest, Obey_ArmThenAgree_SavesAtThatStep) {
  SimulatedAgent agent;
  EXPECT_FALSE(agent.Obey(Order(1, v1::ArmOrder::ARM, 2)));
  EXPECT_EQ(agent.arm.status(), v1::ArmState::ARMED);
  EXPECT_TRUE(agent.Obey(Order(1, v1::ArmOrder::AGREE, 2)));
  EXPECT_TRUE(agent.TryStep());
  EXPECT_FALSE(agent.IsAtAgreedStep());
  EXPECT_TRUE(agent.TryStep());
  EXPECT_TRUE(agent.IsAtAgreedStep());
}

TEST(SimulatedAgentTest, Obey_AStepThatItHasPassed_IsRefused) {
  SimulatedAgent agent;
  agent.step = 5;
  agent.Obey(Order(1, v1::ArmOrder::ARM, 5));
  EXPECT_EQ(agent.arm.status(), v1::ArmState::REFUSED);
  EXPECT_FALSE(agent.Obey(Order(1, v1::ArmOrder::AGREE, 5)));
}

TEST(SimulatedAgentTest, Obey_AnOlderOrder_ChangesNothing) {
  SimulatedAgent agent;
  agent.Obey(Order(2, v1::ArmOrder::ARM, 8));
  agent.Obey(Order(1, v1::ArmOrder::ARM, 9));
  agent.Obey(Order(1, v1::ArmOrder::DISARM, 9));
  EXPECT_EQ(agent.arm.step(), 8);
  EXPECT_EQ(agent.arm.status(), v1::ArmState::ARMED);
}

TEST(SimulatedAgentTest, TryStep_NobodyAgrees_WaitsABoundedTime) {
  SimulatedAgent agent;
  agent.Obey(Order(1, v1::ArmOrder::ARM, 1));
  int waited = 0;
  while (!agent.TryStep()) ASSERT_LT(++waited, 100);
  EXPECT_GT(waited, 0);
  EXPECT_EQ(agent.arm.status(), v1::ArmState::REFUSED);
  EXPECT_FALSE(agent.IsAtAgreedStep());
}

TEST(SimulatedAgentTest, BeginSave_TheSameStepAgain_IsALaterCall) {
  SimulatedAgent agent;
  agent.BeginSave(4, /*overwrite=*/false, absl::UnixEpoch());
  EXPECT_EQ(agent.Report("job").state().saves_size(), 1);
  agent.EndSave(4);
  EXPECT_EQ(agent.Report("job").state().saves_size(), 0);
  agent.BeginSave(4, /*overwrite=*/true, absl::UnixEpoch());
  EXPECT_EQ(agent.calls.at(4).state.call(), 2);
  EXPECT_TRUE(agent.calls.at(4).state.overwrite());
}

TEST(SimulatedAgentTest, Restart_InTheMiddleOfASave_ForgetsAllButItsPlace) {
  SimulatedAgent agent;
  agent.rank = 3;
  agent.step = 7;
  agent.registered = true;
  agent.BeginSave(7, /*overwrite=*/false, absl::UnixEpoch());
  agent.Restart(100, 101);
  EXPECT_EQ(agent.rank, 3);
  EXPECT_EQ(agent.step, 7);
  EXPECT_EQ(agent.incarnation, 100);
  EXPECT_EQ(agent.trainer, 101);
  EXPECT_FALSE(agent.registered);
  EXPECT_TRUE(agent.calls.empty());
}

}  // namespace
}  // namespace cairn
