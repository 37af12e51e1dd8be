// A real agent whose packets to the coordinator's old address vanish, as when a pod is replaced: it finds the
// coordinator by a connection of its own, long before the old one is known to be dead.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include "agent/runtime/agent.h"
#include "agent/testing/fake_coordinator.h"
#include "agent/testing/fake_trainer.h"
#include "agent/testing/forwarder.h"
#include "agent/testing/running_agent.h"
#include "common/base/random_id.h"

namespace cairn {
namespace {

using testing::FakeCoordinator;
using testing::FakeTrainer;
using testing::Forwarder;
using testing::RunningAgent;

class VanishedCoordinatorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    // Socket paths are short: not below the test's own long directory.
    directory_ = "/tmp/cairn-test-" + RandomToken(6);
    std::filesystem::create_directories(directory_ + "/root");
    AgentOptions options;
    options.coordinator = way_.address();
    options.job = "demo";
    options.root = directory_ + "/root";
    options.socket_directory = directory_ + "/sockets";
    agent_ = std::make_unique<RunningAgent>(options);
    coordinator_.Await(0, [](const v1::AgentState& state) { return !state.trainer().attached(); });
  }
  void TearDown() override {
    agent_.reset();
    std::filesystem::remove_all(directory_);
  }

  FakeCoordinator coordinator_;
  Forwarder way_{coordinator_.address()};
  std::string directory_;
  std::unique_ptr<RunningAgent> agent_;
};

TEST_F(VanishedCoordinatorTest, Link_PacketsVanish_NewsArriveBeforeTheCallFails) {
  ::testing::internal::CaptureStderr();
  way_.LosePackets();
  FakeTrainer trainer(agent_->address());
  ASSERT_TRUE(trainer.Attach().ok());
  coordinator_.Await(0, [](const v1::AgentState& state) { return state.trainer().attached(); });
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("event=coordinator_overdue"), std::string::npos) << log;
  EXPECT_EQ(log.find("event=synchronize_failed"), std::string::npos) << log;
}

// As while a trainer makes steps, each of which ends the call that tells of the one before.
TEST_F(VanishedCoordinatorTest, Link_PacketsVanishWhileTheStateChanges_IsNoticedAllTheSame) {
  ::testing::internal::CaptureStderr();
  way_.LosePackets();
  std::promise<void> over;
  std::thread steps([this, ended = over.get_future()] {
    while (ended.wait_for(std::chrono::milliseconds(100)) != std::future_status::ready) agent_->agent().link().Nudge();
  });
  FakeTrainer trainer(agent_->address());
  EXPECT_TRUE(trainer.Attach().ok());
  coordinator_.Await(0, [](const v1::AgentState& state) { return state.trainer().attached(); });
  over.set_value();
  steps.join();
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("event=coordinator_overdue"), std::string::npos) << log;
  EXPECT_EQ(log.find("event=synchronize_failed"), std::string::npos) << log;
}

TEST_F(VanishedCoordinatorTest, Link_PacketsVanishAndTheCoordinatorIsNew_RegistersAgain) {
  way_.LosePackets();
  coordinator_.Restart(6);
  FakeTrainer trainer(agent_->address());
  ASSERT_TRUE(trainer.Attach().ok());
  coordinator_.Await(0, [](const v1::AgentState& state) { return state.trainer().attached(); });
  EXPECT_EQ(coordinator_.registrations(), 2);
}

// gRPC leaves a socket open for good if its channel goes while it waits for the server's first word.
TEST_F(VanishedCoordinatorTest, Link_AnswerComesBeforeAConnectionThatWasTriedBesideIt_ThatOneIsClosedAtLast) {
  way_.Freeze();
  way_.AwaitHeld(1);
  way_.Thaw();
  FakeTrainer trainer(agent_->address());
  ASSERT_TRUE(trainer.Attach().ok());
  coordinator_.Await(0, [](const v1::AgentState& state) { return state.trainer().attached(); });
  way_.Admit();
  way_.AwaitEnded(1);
}

}  // namespace
}  // namespace cairn
