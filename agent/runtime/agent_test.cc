// Tests who may attach to a real agent, and how it follows its coordinator.
#include "agent/runtime/agent.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <vector>

#include "agent/testing/agent_fixture.h"
#include "agent/testing/running_agent.h"
#include "common/base/clock.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

using testing::FakeTrainer;
using testing::RunningAgent;

class AgentTest : public AgentFixture {};

TEST_F(AgentTest, Agent_CoordinatorRestarts_RegistersAgainAndItsSaveGoesOn) {
  RunningAgent agent(Options());
  FakeTrainer trainer(agent.address());
  ASSERT_TRUE(trainer.Attach().ok());
  const uint64_t save = Stage(trainer, *layout_, 3);
  OrderSave(0, SaveOrderOf(3, v1::Phase::WRITING, "plan-1"));
  coordinator_.Restart(6);
  AwaitPhase(0, 3, v1::Phase::WRITTEN);
  EXPECT_EQ(coordinator_.registration(0).agent().coordinator_epoch(), 5u) << "the highest that it had heard of";
  EXPECT_EQ(coordinator_.registrations(), 2);
  Commit(3);
  EXPECT_EQ(trainer.WaitSave(3, save)->state(), v1::Phase::COMMITTED);
}

TEST_F(AgentTest, Agent_CoordinatorOfASmallerEpoch_DoesNotObeyIt) {
  RunningAgent agent(Options());
  FakeTrainer trainer(agent.address());
  ASSERT_TRUE(trainer.Attach().ok());
  Stage(trainer, *layout_, 3);
  const int before = coordinator_.registrations();
  coordinator_.Restart(4);
  while (coordinator_.registrations() < before + 2) {
    agent.agent().host().WaitForChange(
        agent.agent().host().Do([](Session& session, absl::Time) { return session.version(); }),
        absl::Milliseconds(50));
  }
  EXPECT_FALSE(agent.agent().host().Do([](Session& session, absl::Time) { return session.registered(); }));
}

TEST_F(AgentTest, Registration_EarlierProcessesHadNoAnswer_NamesAllThatMayHoldTheRank) {
  std::vector<uint64_t> may_hold;
  // Starts an agent, ends it when it is registered, and returns the predecessors that it has named.
  const auto run_one = [&] {
    coordinator_.Restart(6);
    const RunningAgent agent(Options());
    coordinator_.Await(0, [](const v1::AgentState&) { return true; });
    may_hold = {agent.agent().incarnation()};
    const auto named = coordinator_.registration(0).predecessors();
    return std::vector<uint64_t>(named.begin(), named.end());
  };
  EXPECT_EQ(run_one(), std::vector<uint64_t>());
  coordinator_.Refuse(MakeError(Reason::kRankConflict, "until the lease has ended"));
  for (int i = 0; i < 2; ++i) may_hold.push_back(RunningAgent(Options()).agent().incarnation());
  coordinator_.Refuse(absl::OkStatus());
  const std::vector<uint64_t> before = may_hold;
  EXPECT_EQ(run_one(), before);
  const std::vector<uint64_t> answered = may_hold;
  EXPECT_EQ(run_one(), answered);
}

TEST_F(AgentTest, Attach_TheTrainerHasEndedMeanwhile_IsNotTakenForOneThatLives) {
  RunningAgent agent(Options());
  const pid_t child = fork();
  if (child == 0) _exit(0);
  const auto process = std::make_shared<const UniqueFd>(static_cast<int>(syscall(SYS_pidfd_open, child, 0)));
  waitpid(child, nullptr, 0);
  SessionHost& host = agent.agent().host();
  // Whether the watch or the attaching thread comes first is a matter of microseconds.
  for (uint64_t trainer = 1; trainer <= 50; ++trainer) {
    v1::AttachRequest request;
    request.set_trainer_incarnation(trainer);
    ASSERT_TRUE(agent.agent().Attach(request, {child, geteuid()}, {process, nullptr}).ok());
    const auto attached = [&](uint64_t& version) {
      return host.Do([&](Session& session, absl::Time) {
        version = session.version();
        return session.CheckAttached(trainer).ok();
      });
    };
    const absl::Time deadline = Clock::Real().SteadyNow() + absl::Seconds(10);
    for (uint64_t version = 0; attached(version);) {
      ASSERT_LT(Clock::Real().SteadyNow(), deadline) << "trainer " << trainer << " stays attached";
      host.WaitForChange(version, deadline - Clock::Real().SteadyNow());
    }
  }
}

TEST_F(AgentTest, Attach_TrainerOfAnotherRank_IsRefusedAndTakesNobodysPlace) {
  RunningAgent agent(Options());
  FakeTrainer own(agent.address());
  ASSERT_TRUE(own.Attach().ok());
  v1::AttachRequest request;
  request.set_trainer_incarnation(5);
  request.mutable_place()->set_rank(Options().rank + 1);
  const auto refused = agent.agent().Attach(request, {}, {});
  EXPECT_TRUE(HasReason(refused.status(), Reason::kRankConflict)) << refused.status();
  EXPECT_TRUE(agent.agent().host().Do(
      [&](Session& session, absl::Time) { return session.CheckAttached(own.incarnation()).ok(); }));
  request.mutable_place()->set_rank(Options().rank);
  EXPECT_TRUE(agent.agent().Attach(request, {}, {}).ok());
}

TEST_F(AgentTest, TrainersProcess_IsStoppedAndGoesOn_TheCoordinatorHearsEachChange) {
  RunningAgent agent(Options());
  const pid_t child = fork();
  if (child == 0) {
    while (true) pause();
  }
  const auto process = std::make_shared<const UniqueFd>(static_cast<int>(syscall(SYS_pidfd_open, child, 0)));
  v1::AttachRequest request;
  request.set_trainer_incarnation(5);
  ASSERT_TRUE(agent.agent().Attach(request, {child, geteuid()}, {process, nullptr}).ok());
  const auto await = [&](v1::JobRank::TrainerProcess wanted) {
    coordinator_.Await(Options().rank,
                       [&](const v1::AgentState& state) { return state.trainer().process() == wanted; });
  };
  await(v1::JobRank::RUNNING);
  kill(child, SIGSTOP);
  await(v1::JobRank::STOPPED);
  kill(child, SIGCONT);
  await(v1::JobRank::RUNNING);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  await(v1::JobRank::GONE);
}

TEST_F(AgentTest, Attach_AnotherTrainerHasTheRank_IsRefusedAndToldInTheControlPage) {
  RunningAgent agent(Options());
  const auto page_of = [](const FakeTrainer& trainer) {
    v1::SlabReference page;
    page.set_descriptor_socket(trainer.attached().descriptor_socket());
    page.set_descriptor_id(trainer.attached().control_page_descriptor());
    page.set_bytes(kControlPageBytes);
    return *testing::Mapping::Open(page, true);
  };
  const auto replaced = [](const testing::Mapping& page) { return page.data()[32] == 1; };
  FakeTrainer first(agent.address()), second(agent.address());
  ASSERT_TRUE(first.Attach().ok());
  const auto page = page_of(first);
  EXPECT_FALSE(replaced(*page));
  ASSERT_TRUE(second.Attach().ok());
  EXPECT_TRUE(replaced(*page));
  EXPECT_FALSE(replaced(*page_of(second)));

  const auto refused = [](const absl::Status& status) { return HasReason(status, Reason::kStaleIncarnation); };
  EXPECT_TRUE(refused(first.Attach(first.attached().agent_incarnation())));
  EXPECT_TRUE(refused(first.Attach(first.attached().agent_incarnation() + 1))) << "of another process of the agent";
  EXPECT_TRUE(refused(first.BeginSave(*layout_, 1).status()));
  EXPECT_FALSE(replaced(*page_of(second))) << "its page is the one it had";
  EXPECT_TRUE(second.Attach(second.attached().agent_incarnation()).ok());
}

TEST_F(AgentTest, BeginSave_BeforeAttach_IsNotRegistered) {
  RunningAgent agent(Options());
  FakeTrainer trainer(agent.address());
  EXPECT_TRUE(HasReason(trainer.BeginSave(*layout_, 1).status(), Reason::kNotRegistered));
}

TEST_F(AgentTest, Drain_SaveIsUnderWay_EndsWithItsOutcome) {
  RunningAgent agent(Options());
  FakeTrainer trainer(agent.address());
  ASSERT_TRUE(trainer.Attach().ok());
  EXPECT_EQ(agent.agent().Drain(absl::ZeroDuration()), absl::OkStatus());
  Stage(trainer, *layout_, 3);
  const absl::Status left = agent.agent().Drain(absl::Milliseconds(20));
  EXPECT_TRUE(HasReason(left, Reason::kTimedOut)) << left;
  EXPECT_EQ(left.message(), "the agent ends, and the save of step 3 (staged) has no outcome yet");
  OrderSave(0, SaveOrderOf(3, v1::Phase::ABORTED, "plan-1"));
  EXPECT_EQ(agent.agent().Drain(absl::Seconds(10)), absl::OkStatus());
  agent.agent().Stop(true);
  EXPECT_TRUE(coordinator_.unregistered(0));
}

TEST_F(AgentTest, Attach_PeerOfAnotherUser_IsRefusedUnlessAllowed) {
  if (seteuid(54321) != 0) GTEST_SKIP() << "only root, and in no sandbox, can become another user";
  ASSERT_EQ(seteuid(0), 0);
  AgentOptions options = Options();
  options.allowed_users = {54321};
  RunningAgent agent(options);
  const auto attach_as = [&](uid_t user) {
    // The kernel takes the credentials of the process at connect(2).
    EXPECT_EQ(seteuid(user), 0);
    const absl::Status status = FakeTrainer(agent.address()).Attach();
    EXPECT_EQ(seteuid(0), 0);
    return status;
  };
  EXPECT_TRUE(attach_as(54321).ok());
  EXPECT_TRUE(HasReason(attach_as(54322), Reason::kPeerUid));
}

}  // namespace
}  // namespace cairn
