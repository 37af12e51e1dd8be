// Fake agents drive the real coordinator binary over gRPC. In whatever way an agent or a trainer ends or stands still,
// there must be one outcome in time that names the cause, and nothing may be half committed.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "common/status/status_proto.h"
#include "tests/fault/coordinator_fixture.h"

namespace cairn::testing {
namespace {

using State = v1::Phase;

class CoordinatorTest : public CoordinatorFixture {};

TEST_F(CoordinatorTest, Save_CalledByTrainers_IsCommittedAndWhole) {
  Start();
  StartAgents();
  SaveAll(10);
  EXPECT_TRUE(Outcome(10).ok());
  ExpectWhole(10);
  SaveAll(20);
  EXPECT_TRUE(Outcome(20).ok());
  EXPECT_EQ(Steps(), (std::vector<int64_t>{10, 20}));
  // A save of a committed step is refused, and the first outcome stays.
  SaveAll(10);
  EXPECT_TRUE(HasReason(Outcome(10), Reason::kStepCommitted));
}

TEST_F(CoordinatorTest, Save_RequestedWithoutAStep_TakesAStepAheadOfAllRanks) {
  Start();
  StartAgents();
  std::atomic<bool> stop = false;
  std::vector<std::thread> trainers;
  for (size_t i = 0; i < agents_.size(); ++i) {
    trainers.emplace_back([&, i] {
      // Each trainer has its own pace.
      for (int64_t step = 1; !stop; ++step) {
        agents_[i]->ReportStep(step);
        std::this_thread::sleep_for(std::chrono::milliseconds(5 + 3 * i));
      }
    });
  }
  const std::string id = RandomToken();
  auto created = Create(std::nullopt, id);
  ASSERT_TRUE(created.ok()) << created.status();
  const v1::Checkpoint ended = Follow(*created, id);
  stop = true;
  for (std::thread& trainer : trainers) trainer.join();
  EXPECT_EQ(ended.state(), State::COMMITTED) << ended.ShortDebugString();
  ExpectWhole(ended.step());
  // The same request, also after a restart, gets the same answer and makes no other save.
  agents_.clear();
  Restart();
  created = Create(std::nullopt, id);
  ASSERT_TRUE(created.ok()) << created.status();
  EXPECT_EQ(created->state(), State::COMMITTED);
  EXPECT_EQ(created->step(), ended.step());
  EXPECT_EQ(Steps().size(), 1u);
}

TEST_F(CoordinatorTest, Save_ARankDoesNotMove_NamesItInEveryPhase) {
  Start({"--phase-timeout=1500ms", "--lease-ttl=4s"});
  StartAgents();
  int64_t step = 0;
  for (const auto& [phase, name] : {std::pair(v1::Phase::STAGING, "staging"), {v1::Phase::WRITING, "writing"}}) {
    agents_[1]->HoldAt(phase);
    SaveAll(++step);
    const absl::Status outcome = Outcome(step);
    EXPECT_TRUE(HasReason(outcome, Reason::kRankLate)) << outcome;
    EXPECT_EQ(MetadataOf(outcome)["ranks"], "1");
    EXPECT_EQ(MetadataOf(outcome)["phase"], name);
    EXPECT_EQ(MetadataOf(outcome)["step"], absl::StrCat(step));
    agents_[1]->Release();
    // The attempt's files are gone, and the step can be saved at once.
    SaveAll(step);
    EXPECT_TRUE(Outcome(step).ok());
    EXPECT_FALSE(HasFiles(step, 1));
    ExpectWhole(step);
  }
  // The trainer of rank 1 does not come.
  agents_[0]->Save(7);
  agents_[2]->Save(7);
  const absl::Status outcome = Outcome(7, {1});
  EXPECT_TRUE(HasReason(outcome, Reason::kRankLate)) << outcome;
  EXPECT_EQ(MetadataOf(outcome)["ranks"], "1");
  EXPECT_EQ(MetadataOf(outcome)["phase"], "waiting");
  EXPECT_EQ(MetadataOf(outcome)["last_committed"], "2");
  // It comes after all and hears the same, and the next save works.
  agents_[1]->Save(7);
  EXPECT_TRUE(HasReason(agents_[1]->WaitOutcome(7), Reason::kRankLate));
  SaveAll(7);
  EXPECT_TRUE(Outcome(7).ok());
}

TEST_F(CoordinatorTest, Save_AgentIsKilled_NamesItAndTheNextOneWorks) {
  Start({"--phase-timeout=60s", "--lease-ttl=1s"});
  StartAgents();
  agents_[2]->HoldAt(v1::Phase::WRITING);
  SaveAll(5);
  ASSERT_TRUE(agents_[2]->WaitPhase(5, v1::Phase::WRITING));
  agents_[2]->Kill();
  const absl::Status outcome = Outcome(5, {2});
  EXPECT_TRUE(HasReason(outcome, Reason::kRankLost)) << outcome;
  EXPECT_EQ(MetadataOf(outcome)["ranks"], "2");
  EXPECT_EQ(MetadataOf(outcome)["phase"], "writing");
  agents_[2] = std::make_unique<FakeAgent>(AgentOptions(2));
  ASSERT_TRUE(agents_[2]->WaitRegistered());
  SaveAll(6);
  EXPECT_TRUE(Outcome(6).ok());
  EXPECT_EQ(Steps(), std::vector<int64_t>{6});
}

TEST_F(CoordinatorTest, Save_TrainerIsLostWhileStaging_NamesIt) {
  Start();
  StartAgents();
  agents_[1]->HoldAt(v1::Phase::STAGING);
  SaveAll(5);
  ASSERT_TRUE(agents_[1]->WaitPhase(5, v1::Phase::STAGING));
  agents_[1]->LoseTrainer();
  const absl::Status outcome = Outcome(5);
  EXPECT_TRUE(HasReason(outcome, Reason::kTrainerLost)) << outcome;
  EXPECT_EQ(MetadataOf(outcome)["ranks"], "1");
}

TEST_F(CoordinatorTest, Save_DisksOfSeveralRanksFail_ReportsAllTogether) {
  Start();
  StartAgents();
  for (int rank : {0, 2}) {
    agents_[static_cast<size_t>(rank)]->FailWith(
        MakeError(Reason::kNoSpace, "write /ckpt/x: No space left on device", {{"errno", "28"}}));
  }
  SaveAll(5);
  const absl::Status outcome = Outcome(5);
  EXPECT_TRUE(HasReason(outcome, Reason::kNoSpace)) << outcome;
  EXPECT_EQ(MetadataOf(outcome)["ranks"], "0, 2");
  EXPECT_EQ(MetadataOf(outcome)["errno"], "28");
  EXPECT_FALSE(HasFiles(5, 1));
}

TEST_F(CoordinatorTest, Save_AReplicaDiffers_IsRefusedByName) {
  Start();
  for (int rank = 0; rank < 3; ++rank) {
    FakeAgentOptions options = AgentOptions(rank);
    options.diverged = rank == 1;
    agents_.push_back(std::make_unique<FakeAgent>(options));
  }
  for (auto& agent : agents_) ASSERT_TRUE(agent->WaitRegistered());
  SaveAll(1);
  const absl::Status outcome = Outcome(1);
  EXPECT_TRUE(HasReason(outcome, Reason::kReplicaMismatch)) << outcome;
  EXPECT_NE(outcome.message().find("tensor b "), std::string::npos) << outcome;
  EXPECT_TRUE(Steps().empty());
}

TEST_F(CoordinatorTest, Save_NamesAreDropped_IsRefusedUnlessAllowed) {
  Start();
  StartAgents();
  SaveAll(1);
  ASSERT_TRUE(Outcome(1).ok());
  agents_.clear();
  Restart();
  for (int rank = 0; rank < 3; ++rank) {
    FakeAgentOptions options = AgentOptions(rank);
    options.without_b = true;
    agents_.push_back(std::make_unique<FakeAgent>(options));
  }
  SaveAll(2);
  const absl::Status outcome = Outcome(2);
  EXPECT_TRUE(HasReason(outcome, Reason::kNamesDropped)) << outcome;
  EXPECT_EQ(MetadataOf(outcome)["names"], "b");
  for (auto& agent : agents_) agent->Save(2, /*allow_dropped_names=*/true);
  EXPECT_TRUE(Outcome(2).ok());
}

TEST_F(CoordinatorTest, Load_AllRanksAsk_IsPlannedOnce) {
  Start();
  StartAgents();
  for (auto& agent : agents_) agent->Load(1, std::nullopt);
  for (auto& agent : agents_) {
    const auto order = agent->WaitLoad(1);
    ASSERT_TRUE(order.ok()) << order.status();
    EXPECT_TRUE(HasReason(StatusFromProto(order->error()), Reason::kNotCommitted)) << order->ShortDebugString();
  }
  SaveAll(4);
  ASSERT_TRUE(Outcome(4).ok());
  for (auto& agent : agents_) agent->Load(2, std::nullopt);
  uint64_t read = 0;
  for (auto& agent : agents_) {
    const auto order = agent->WaitLoad(2);
    ASSERT_TRUE(order.ok()) << order.status();
    EXPECT_EQ(order->phase(), v1::Phase::DONE) << order->ShortDebugString();
    EXPECT_EQ(order->step(), 4);
    EXPECT_EQ(order->total_bytes_read(), order->unique_bytes());
    EXPECT_EQ(order->io_path(), v1::IO_PATH_DIRECT);
    read += agent->read_plan().read_bytes();
    if (agent == agents_.back()) {
      EXPECT_EQ(read, order->total_bytes_read());
    }
  }
  // The ranks ask for different loads.
  agents_[0]->Load(3, 4);
  agents_[1]->Load(3, std::nullopt);
  agents_[2]->Load(3, 4);
  for (auto& agent : agents_) {
    const auto order = agent->WaitLoad(3);
    ASSERT_TRUE(order.ok()) << order.status();
    EXPECT_TRUE(HasReason(StatusFromProto(order->error()), Reason::kBadRequest)) << order->ShortDebugString();
  }
}

}  // namespace
}  // namespace cairn::testing
