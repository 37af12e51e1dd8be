// Tests when the shards that move in a save go over NCCL, and what becomes of it, through the job that it belongs to.
#include "coordinator/save/save_exchange.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "common/status/reason.h"
#include "common/status/status_proto.h"
#include "coordinator/testing/job_fixture.h"

namespace cairn {
namespace {

using v1::Exchange;
using v1::GroupState;
using v1::NcclSupport;
using v1::SaveState;

constexpr int64_t kStep = 4;

// There are three ranks, each with memory of its own. Rank 1 writes shards of rank 0; rank 2 has no part in that.
class SaveExchangeTest : public JobFixture {
 protected:
  SaveExchangeTest() { Start({}); }

  // `change` is the policy or version of rank 1.
  void Start(const NcclSupport& change, const std::string& other_memory = "two") {
    StartJob(Options(), 3);
    group_.clear();
    for (int rank = 0; rank < 3; ++rank) {
      v1::RegisterAgentRequest request;
      *request.mutable_agent() = Identity(rank);
      request.set_world_size(3);
      request.set_boot_id(rank == 1 ? other_memory : "one");
      NcclSupport& nccl = *request.mutable_nccl();
      nccl.set_saves_policy(NcclSupport::AUTO);
      nccl.set_version(22809);
      nccl.set_shared_memory(true);
      nccl.set_trusted_network(true);
      if (rank == 1) nccl.MergeFrom(change);
      ASSERT_TRUE(job().Register(request, At()).ok());
    }
    Recover();
    for (int rank = 0; rank < 3; ++rank) Say(rank, v1::Phase::PLANNING);
  }
  void Say(int rank, v1::Phase::Value phase, const absl::Status& error = absl::OkStatus()) {
    SaveState state = phase == v1::Phase::PLANNING ? Begun(rank, kStep) : InAttempt(rank, kStep, phase);
    if (phase == v1::Phase::STAGING) {
      state.clear_attempt();
      state.clear_attempt_nonce();
    }
    state.set_bytes_done(++bytes_done_);  // each report is progress
    state.set_trainer_incarnation(Trainer(rank));
    if (!error.ok()) *state.mutable_error() = StatusToProto(error);
    v1::AgentState agent = StateWith(Trainer(rank));
    agent.set_round_bytes(uint64_t{3} << 20);
    *agent.add_saves() = state;
    if (group_[rank].number() != 0) *agent.add_groups() = group_[rank];
    said_[rank] = agent;
    Synchronize(rank, agent);
    EXPECT_EQ(core_->Missed(), "");
  }
  void SayAll(v1::Phase::Value phase) {
    for (int rank = 0; rank < 3; ++rank) Say(rank, phase);
  }
  void Plan(uint64_t bytes = uint64_t{1} << 30, std::vector<PlannedSave::Move> moves = {}) {
    const auto plan = Take<PlanSave>();
    ASSERT_TRUE(plan.has_value());
    PlannedSave planned{"plan", 1};
    planned.moves = moves.empty() ? std::vector<PlannedSave::Move>{{0, 1, bytes}} : std::move(moves);
    planned.transfer_token = "token";
    job().OnSavePlanned(plan->key, planned, At());
    if (const auto reserve = Take<ReserveAttempt>(); reserve.has_value()) {
      job().OnReserved(reserve->step, reserve->ticket, Reserved{1, kNonce}, At());
    }
  }
  v1::SaveOrder Order(int rank) { return OrderOf(rank, kStep); }
  Exchange::Way Way(int rank) { return Order(rank).exchange().way(); }
  // All ranks do what the orders about groups say.
  void Join(v1::Phase::Value phase) {
    for (const bool joined : {false, true}) {
      for (int rank = 0; rank < 3; ++rank) {
        const v1::SynchronizeAgentResponse orders = job().OrdersFor(rank, At());
        ASSERT_EQ(orders.groups_size(), 1);
        group_[rank].set_number(orders.groups(0).number());
        group_[rank].set_phase(joined ? GroupState::READY : GroupState::BUILDING);
        group_[rank].set_unique_id(rank == 0 && !joined ? std::string(128, 'i') : "");
        Say(rank, phase);
      }
    }
  }
  void Break(int rank, const std::string& error, v1::Phase::Value phase, std::vector<int> faulty_ranks = {}) {
    group_[rank].set_phase(GroupState::BROKEN);
    group_[rank].set_error(error);
    for (const int at_fault : faulty_ranks) group_[rank].add_faulty_ranks(static_cast<uint32_t>(at_fault));
    Say(rank, phase);
  }
  // Lets time pass in which all ranks' agents are heard, and nothing moves.
  void PassIdly(absl::Duration time) {
    for (const absl::Time end = now_ + time; now_ < end;) {
      Pass(std::min(absl::Duration(absl::Seconds(1)), end - now_));
      for (int rank = 0; rank < 3; ++rank) Synchronize(rank, said_[rank]);
    }
  }
  // NCCL is required, and rank 1 fails because what it waits for has not come from another.
  void FailAWaitFor(int other) {
    Start(Policy(NcclSupport::REQUIRE));
    Plan();
    Join(v1::Phase::STAGING);
    SayAll(v1::Phase::WRITING);
    Break(1, "no progress", v1::Phase::WRITING, {other});
    Say(1, v1::Phase::FAILED, Lacks(std::to_string(other)));
  }
  // The error of a rank whose bytes have not come from these.
  static absl::Status Lacks(const std::string& ranks) {
    return MakeError(Reason::kTransportFailed, "--nccl-saves=require: no progress",
                     {{"ranks", ranks}, {"exchange", "nccl"}});
  }
  static NcclSupport Policy(NcclSupport::Policy policy, int version = 22809) {
    NcclSupport nccl;
    nccl.set_saves_policy(policy);
    nccl.set_version(version);
    return nccl;
  }

  std::map<int, GroupState> group_;
  std::map<int, v1::AgentState> said_;
  uint64_t bytes_done_ = 0;
};

TEST_F(SaveExchangeTest, Save_GroupIsReadyAndAllHaveStaged_GoesOverNccl) {
  Plan();
  EXPECT_EQ(Order(0).phase(), v1::Phase::WRITING) << "ranks stage and write their own while the group is built";
  EXPECT_EQ(Way(0), Exchange::UNDECIDED);
  EXPECT_EQ(job().View(At()).checkpoint().exchange_transport(), v1::TRANSPORT_UNSPECIFIED);
  EXPECT_FALSE(Order(2).has_exchange()) << "it neither gives nor takes";
  Join(v1::Phase::STAGING);
  Say(0, v1::Phase::WRITING);
  Say(1, v1::Phase::WRITING);
  EXPECT_EQ(Way(1), Exchange::UNDECIDED) << "rank 2 is in the group, and may be late by itself";
  Say(2, v1::Phase::WRITING);
  for (int rank = 0; rank < 2; ++rank) {
    const Exchange exchange = Order(rank).exchange();
    EXPECT_EQ(exchange.way(), Exchange::GROUP);
    EXPECT_EQ(exchange.group(), job().OrdersFor(rank, At()).groups(0).number());
    EXPECT_EQ(std::vector<uint32_t>(exchange.ranks().begin(), exchange.ranks().end()),
              rank == 0 ? (std::vector<uint32_t>{0, 1}) : std::vector<uint32_t>{0})
        << "who keeps the gate is told all who come to it";
    ASSERT_EQ(exchange.peers_size(), 1);
    EXPECT_EQ(exchange.peers(0), 1u - static_cast<uint32_t>(rank));
    EXPECT_EQ(exchange.window_bytes(), uint64_t{2} << 20) << "two thirds of a read buffer";
    EXPECT_FALSE(exchange.required());
  }
  EXPECT_EQ(job().View(At()).checkpoint().exchange_transport(), v1::TRANSPORT_NCCL);
}

TEST_F(SaveExchangeTest, Save_RanksShareMemory_NamesOnlyThePairsThatDoNot) {
  Plan(0, {{0, 1, 1 << 30}, {0, 2, 1 << 30}, {2, 1, 1 << 30}});
  EXPECT_EQ(Order(0).exchange().peers_size(), 1) << "what rank 2 takes of it goes through shared memory";
  EXPECT_EQ(Order(1).exchange().peers_size(), 2);
  EXPECT_EQ(Order(1).exchange().window_bytes(), uint64_t{1} << 20) << "two sources send in one step";
}

TEST_F(SaveExchangeTest, Save_AllThatMovesGoesThroughSharedMemory_HasNothingToDecide) {
  Plan(0, {{0, 2, 1 << 30}});
  for (int rank = 0; rank < 3; ++rank) EXPECT_FALSE(Order(rank).has_exchange());
  EXPECT_EQ(job().OrdersFor(0, At()).groups_size(), 0);
}

TEST_F(SaveExchangeTest, Save_PolicyOfSavesIsNever_HasNothingToDecide) {
  NcclSupport never = Policy(NcclSupport::NEVER);
  never.set_policy(NcclSupport::AUTO);  // for loads
  Start(never);
  Plan();
  EXPECT_EQ(Way(0), Exchange::HOST) << "ranks 0 and 2 want it";
  EXPECT_EQ(Order(0).exchange().reason(), "rank 1 has --nccl-saves=never");
}

TEST_F(SaveExchangeTest, Save_LittleMoves_BuildsNoGroupForIt) {
  Plan(20 << 10);
  EXPECT_EQ(Way(1), Exchange::HOST);
  EXPECT_EQ(Order(1).exchange().reason(), "only 20.0 KiB to move");
}

TEST_F(SaveExchangeTest, Save_RequiredAndNotToBeHad_IsAbortedWithItsReason) {
  Start(Policy(NcclSupport::REQUIRE, 23007));
  Plan();
  EXPECT_EQ(ErrorOf(Order(0)), Reason::kNcclUnavailable) << Order(0).ShortDebugString();
  const std::string next = NextActionOf(StatusFromProto(Order(0).error()));
  EXPECT_TRUE(next.starts_with("Install one version of NCCL")) << next;
  EXPECT_NE(next.find("--nccl-saves=auto"), std::string::npos) << next;
}

TEST_F(SaveExchangeTest, Save_GroupBreaksInTheExchange_GoesOnOverTheHostAndSaysWhy) {
  Plan();
  Join(v1::Phase::STAGING);
  SayAll(v1::Phase::WRITING);
  EXPECT_EQ(Way(1), Exchange::GROUP);
  Break(0, "cairn-gpu-worker was ended by signal 9", v1::Phase::WRITING);
  EXPECT_EQ(job().OrdersFor(1, At()).groups_size(), 0) << "all end their workers";
  EXPECT_EQ(Way(1), Exchange::GROUP) << "the agents may say why";
  Pass(absl::Seconds(3));
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(Order(rank).phase(), v1::Phase::WRITING) << Order(rank).ShortDebugString();
    EXPECT_EQ(Way(rank), Exchange::HOST);
    EXPECT_EQ(Order(rank).exchange().reason(), "rank 0: cairn-gpu-worker was ended by signal 9");
  }
  const v1::Checkpoint shown = job().View(At()).checkpoint();
  EXPECT_EQ(shown.exchange_transport(), v1::TRANSPORT_GRPC);
  EXPECT_EQ(shown.nccl_refusal(), "rank 0: cairn-gpu-worker was ended by signal 9");
  SayAll(v1::Phase::WRITTEN);
  EXPECT_TRUE(Take<MakeManifest>().has_value()) << "the save is not lost";
}

TEST_F(SaveExchangeTest, Save_GroupBreaksAndNcclIsRequired_IsForTheRanksThatLackBytesToSay) {
  Start(Policy(NcclSupport::REQUIRE));
  Plan();
  Join(v1::Phase::STAGING);
  SayAll(v1::Phase::WRITING);
  Break(1, "hangs", v1::Phase::WRITING);
  Pass(absl::Seconds(3));
  EXPECT_EQ(Way(1), Exchange::HOST);
  EXPECT_TRUE(Order(1).exchange().required());
  EXPECT_EQ(Order(1).phase(), v1::Phase::WRITING);
  Say(1, v1::Phase::FAILED, Lacks("0"));
  PassIdly(absl::Seconds(3));
  const absl::Status error = StatusFromProto(Order(1).error());
  EXPECT_TRUE(HasReason(error, Reason::kTransportFailed)) << error;
  EXPECT_EQ(MetadataOf(error)["ranks"], "0") << "the rank whose bytes did not come";
  EXPECT_NE(NextActionOf(error).find("Save again once NCCL is tried again"), std::string::npos) << NextActionOf(error);
}

// Rank 1 waits in vain for rank 0, whose worker waits in vain for that of rank 2.
TEST_F(SaveExchangeTest, Save_AWorkerHangsAndNcclIsRequired_NamesItsRankAndNotThoseThatWaited) {
  FailAWaitFor(0);
  PassIdly(absl::Milliseconds(1500));
  EXPECT_EQ(ErrorOf(Order(1)), std::nullopt) << "the agent of the worker that hangs is about to say so";
  Break(2, "cairn-gpu-worker does not answer any more", v1::Phase::WRITING, {2});
  const absl::Status error = StatusFromProto(Order(1).error());
  EXPECT_TRUE(HasReason(error, Reason::kTransportFailed)) << error;
  EXPECT_EQ(MetadataOf(error)["ranks"], "2") << error;
  EXPECT_NE(error.message().find("rank 2: cairn-gpu-worker does not answer any more"), std::string::npos) << error;
  EXPECT_EQ(error.message().find("no progress"), std::string::npos) << error;
  EXPECT_NE(NextActionOf(error).find("Save again once NCCL is tried again"), std::string::npos) << NextActionOf(error);
}

TEST_F(SaveExchangeTest, Save_NobodyKnowsForSureAndNcclIsRequired_NamesWhomTheFirstWaitedFor) {
  FailAWaitFor(0);
  PassIdly(absl::Seconds(3));
  EXPECT_EQ(MetadataOf(StatusFromProto(Order(1).error()))["ranks"], "0");
}

TEST_F(SaveExchangeTest, Save_GroupIsNeverComplete_GoesOverTheHostAndNobodyIsLateForTheWait) {
  Plan();
  SayAll(v1::Phase::WRITING);
  EXPECT_EQ(Way(1), Exchange::UNDECIDED);
  PassIdly(Options().phase_timeout / 2 + absl::Seconds(1));
  EXPECT_EQ(Way(1), Exchange::HOST);
  PassIdly(Options().phase_timeout - absl::Seconds(2));
  EXPECT_EQ(Order(1).phase(), v1::Phase::WRITING) << Order(1).ShortDebugString();
  PassIdly(absl::Seconds(3));
  EXPECT_EQ(ErrorOf(Order(1)), Reason::kRankLate) << Order(1).ShortDebugString();
}

// Rank 2 has no part in the moves. The others wait for it all the same, because it is in the group.
TEST_F(SaveExchangeTest, Save_ARankDoesNotStage_ItAloneIsLate) {
  Plan();
  Say(0, v1::Phase::WRITING);
  Say(1, v1::Phase::WRITING);
  PassIdly(absl::Seconds(2));
  Say(2, v1::Phase::STAGING);
  PassIdly(Options().phase_timeout - absl::Seconds(1));
  EXPECT_EQ(Order(0).phase(), v1::Phase::WRITING) << Order(0).ShortDebugString();
  PassIdly(absl::Seconds(2));
  const absl::Status error = StatusFromProto(Order(0).error());
  EXPECT_EQ(ReasonOf(error), Reason::kRankLate) << error;
  EXPECT_EQ(MetadataOf(error)["ranks"], "2") << error;
}

TEST_F(SaveExchangeTest, Save_TrainersStageLongerThanAnIdleGroupIsKept_GoesOverNccl) {
  Plan();
  Join(v1::Phase::STAGING);
  for (absl::Duration passed; passed <= Groups::kIdleTimeout; passed += Options().phase_timeout / 2) {
    Pass(Options().phase_timeout / 2);
    SayAll(v1::Phase::STAGING);
  }
  SayAll(v1::Phase::WRITING);
  EXPECT_EQ(Way(1), Exchange::GROUP);
}

TEST_F(SaveExchangeTest, Save_IsCancelledInTheExchange_EndsTheGroupWithoutAPause) {
  Plan();
  Join(v1::Phase::STAGING);
  SayAll(v1::Phase::WRITING);
  EXPECT_EQ(Way(1), Exchange::GROUP);
  (void)job().Cancel({kStep, ""}, At());
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(job().OrdersFor(rank, At()).groups_size(), 0);
}

TEST_F(SaveExchangeTest, Save_IsAbortedInTheExchange_GivesTheGroupUp) {
  Plan();
  Join(v1::Phase::STAGING);
  SayAll(v1::Phase::WRITING);
  Say(2, v1::Phase::FAILED, MakeError(Reason::kNoSpace, "the disk is full"));
  Pass(absl::Seconds(2));
  EXPECT_EQ(ErrorOf(Order(0)), Reason::kNoSpace);
  EXPECT_EQ(job().OrdersFor(0, At()).groups_size(), 0) << "nobody knows which bytes are under way";
}

TEST_F(SaveExchangeTest, Save_RanksWriteByTheWordOfAnEarlierCoordinator_GoesOverTheHost) {
  StartJob(Options(), 3);
  for (int rank = 0; rank < 3; ++rank) {
    v1::RegisterAgentRequest request;
    *request.mutable_agent() = Identity(rank);
    request.set_world_size(3);
    *request.mutable_nccl() = Policy(NcclSupport::AUTO);
    ASSERT_TRUE(job().Register(request, At()).ok());
  }
  Recover();
  SayAll(v1::Phase::WRITING);
  Plan();
  EXPECT_EQ(Way(1), Exchange::HOST);
  EXPECT_EQ(Order(1).exchange().reason(), "the coordinator has restarted");
}

}  // namespace
}  // namespace cairn
