// Tests when a reshard or a load goes over NCCL, and what becomes of it, through the job that it belongs to.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>

#include "absl/strings/match.h"
#include "common/rpc/transport_use.h"
#include "common/status/reason.h"
#include "common/status/status_proto.h"
#include "coordinator/testing/job_fixture.h"

namespace cairn {
namespace {

using v1::Exchange;
using v1::GroupState;
using v1::LoadState;

class ExchangeTest : public JobFixture {
 protected:
  ExchangeTest() { Start(v1::NcclSupport::AUTO, 22809); }

  // Two ranks whose agents share no memory. Rank 1 has this policy and version.
  void Start(v1::NcclSupport::Policy policy, int version) {
    StartJob(Options(), 2);
    for (int rank = 0; rank < 2; ++rank) {
      v1::RegisterAgentRequest request;
      *request.mutable_agent() = Identity(rank);
      request.set_world_size(2);
      request.set_boot_id("one");
      request.mutable_nccl()->set_policy(rank == 0 ? v1::NcclSupport::AUTO : policy);
      request.mutable_nccl()->set_version(rank == 0 ? 22809 : version);
      ASSERT_TRUE(job().Register(request, At()).ok());
    }
    StoredAttempt committed;
    committed.step = 7;
    committed.attempt = 1;
    committed.committed = true;
    Recover(StoredAttempts{committed});
    for (int rank = 0; rank < 2; ++rank) ReportCall(rank, v1::Phase::PLANNING);
  }
  void ReportCall(int rank, v1::Phase::Value phase, bool staged = false, const std::string& error = "") {
    LoadState call;
    call.set_number(1);
    call.set_phase(phase);
    call.set_layout_digest(Layout(rank));
    if (reshard_) call.set_source_layout_digest(Layout(rank));
    call.set_source_staged(reshard_ && staged);
    call.set_bytes_done(++bytes_done_);  // each report is progress
    call.set_trainer_incarnation(Trainer(rank));
    call.set_strict(true);
    if (phase != v1::Phase::PLANNING) call.set_plan_digest("plan");
    call.set_exchange_refusal(refusal_[rank]);
    if (!error.empty()) {
      *call.mutable_error() = StatusToProto(MakeError(Reason::kTransportFailed, error, {{"ranks", "1"}}));
    }
    v1::AgentState state = StateWith(Trainer(rank));
    *state.add_loads() = call;
    if (group_[rank].number() != 0) *state.add_groups() = group_[rank];
    said_[rank] = state;
    Synchronize(rank, state);
    EXPECT_EQ(core_->Missed(), "");
  }
  void Plan(uint64_t transport_bytes = uint64_t{1} << 30) {
    Answer<PlanLoad>([transport_bytes](Job& job, const PlanLoad& what, const Moment& at) {
      PlannedLoad plan;
      plan.plan_digest = "plan";
      plan.transport_bytes = transport_bytes;
      if (!what.source_layout.empty()) plan.source_plan_digest = "source";
      if (what.source_layout.empty()) plan.world_size = 2;
      job.OnLoadPlanned(what.number, what.ticket, plan, at);
    });
  }
  v1::SynchronizeAgentResponse Orders(int rank) { return job().OrdersFor(rank, At()); }
  v1::LoadOrder Order(int rank) { return Orders(rank).loads(0); }
  Exchange::Way Way(int rank) { return Order(rank).exchange().way(); }
  // Returns how the first load's bytes go, as people read it.
  std::string Transport() {
    const v1::Load load = job().View(At()).loads(0);
    if (load.exchange_transport() == v1::TRANSPORT_UNSPECIFIED) return "";
    return TransportText({{load.exchange_transport()}, load.nccl_refusal()});
  }
  // Both ranks do what the orders about groups say.
  void Join() {
    for (const bool joined : {false, true}) {
      for (int rank = 0; rank < 2; ++rank) {
        group_[rank].set_number(Orders(rank).groups(0).number());
        group_[rank].set_phase(joined ? GroupState::READY : GroupState::BUILDING);
        group_[rank].set_unique_id(rank == 0 && !joined ? std::string(128, 'i') : "");
        ReportCall(rank, v1::Phase::READING, staged_);
      }
    }
  }
  void Stage() {
    staged_ = true;
    for (int rank = 0; rank < 2; ++rank) ReportCall(rank, v1::Phase::READING, true);
  }

  // Time in which both ranks' agents are heard, and nothing moves.
  void PassIdly(absl::Duration time) {
    for (const absl::Time end = now_ + time; now_ < end;) {
      Pass(std::min(absl::Duration(absl::Seconds(1)), end - now_));
      for (int rank = 0; rank < 2; ++rank) Synchronize(rank, said_[rank]);
    }
  }

  GroupState group_[2];
  std::string refusal_[2];
  v1::AgentState said_[2];
  bool reshard_ = true;
  bool staged_ = false;
  uint64_t bytes_done_ = 0;
};

TEST_F(ExchangeTest, Reshard_GroupIsReadyAndAllHaveStaged_GoesOverNccl) {
  Plan();
  EXPECT_EQ(Order(0).phase(), v1::Phase::READING) << "trainers stage while the group is built";
  EXPECT_EQ(Way(0), Exchange::UNDECIDED);
  Join();
  EXPECT_EQ(Way(0), Exchange::UNDECIDED) << "not all have staged";
  ReportCall(0, v1::Phase::READING, true);
  EXPECT_EQ(Way(0), Exchange::UNDECIDED);
  EXPECT_EQ(Transport(), "");
  ReportCall(1, v1::Phase::READING, true);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(Way(rank), Exchange::GROUP);
    EXPECT_EQ(Order(rank).exchange().group(), Orders(rank).groups(0).number());
  }
  EXPECT_EQ(Transport(), "nccl");
}

TEST_F(ExchangeTest, Reshard_StagedBeforeTheGroupIsReady_WaitsForIt) {
  Plan();
  Stage();
  EXPECT_EQ(Way(0), Exchange::UNDECIDED);
  Join();
  EXPECT_EQ(Way(0), Exchange::GROUP);
}

TEST_F(ExchangeTest, Reshard_GroupBreaksBeforeItIsUsed_GoesOverTheHostAndSaysWhy) {
  Plan();
  Join();
  group_[1].set_phase(GroupState::BROKEN);
  group_[1].set_error("ncclSystemError");
  Stage();
  EXPECT_EQ(Way(0), Exchange::HOST);
  EXPECT_EQ(Order(1).exchange().reason(), "rank 1: ncclSystemError; tried again after 1m");
  EXPECT_EQ(Transport(), "grpc (nccl: rank 1: ncclSystemError; tried again after 1m)");
  EXPECT_EQ(Orders(0).groups_size(), 0);
}

// Rank 0 cannot go on, and has waited a moment longer than rank 1 has taken to stage nothing.
TEST_F(ExchangeTest, Reshard_OneRankDoesNotStage_ItAloneIsLate) {
  Plan();
  ReportCall(0, v1::Phase::READING, true);
  PassIdly(absl::Seconds(2));
  ReportCall(1, v1::Phase::READING);
  PassIdly(Options().phase_timeout - absl::Seconds(1));
  EXPECT_EQ(Order(0).phase(), v1::Phase::READING) << Order(0).ShortDebugString();
  PassIdly(absl::Seconds(2));
  const absl::Status error = StatusFromProto(Order(0).error());
  EXPECT_EQ(ReasonOf(error), Reason::kRankLate) << error;
  EXPECT_EQ(MetadataOf(error)["ranks"], "1") << error;
}

TEST_F(ExchangeTest, Reshard_OneRankStagesSlowly_TheOthersTimeBeginsWhenItHas) {
  Plan();
  ReportCall(0, v1::Phase::READING, true);
  for (int i = 0; i < 3; ++i) {
    PassIdly(Options().phase_timeout / 2);
    ReportCall(1, v1::Phase::READING);
  }
  ReportCall(1, v1::Phase::READING, true);
  PassIdly(Options().phase_timeout - absl::Seconds(1));
  EXPECT_EQ(Order(0).phase(), v1::Phase::READING) << Order(0).ShortDebugString();
  ReportCall(1, v1::Phase::READING, true);
  PassIdly(absl::Seconds(2));
  EXPECT_EQ(MetadataOf(StatusFromProto(Order(0).error()))["ranks"], "0");
}

TEST_F(ExchangeTest, Reshard_TrainersStageLongerThanAnIdleGroupIsKept_GoesOverNccl) {
  Plan();
  Join();
  for (absl::Duration passed; passed <= Groups::kIdleTimeout; passed += Options().phase_timeout / 2) {
    Pass(Options().phase_timeout / 2);
    for (int rank = 0; rank < 2; ++rank) ReportCall(rank, v1::Phase::READING);
  }
  Stage();
  EXPECT_EQ(Way(0), Exchange::GROUP);
}

TEST_F(ExchangeTest, Reshard_GroupIsNeverComplete_GoesOverTheHostAfterItsTimeout) {
  Plan();
  Stage();
  Pass(Options().phase_timeout / 2 + absl::Seconds(1));
  EXPECT_EQ(Way(0), Exchange::HOST);
  EXPECT_EQ(Order(0).exchange().reason(),
            "the group was not complete within 10s: ranks 0, 1 have not joined; tried again after 1m");
}

TEST_F(ExchangeTest, Reshard_OtherVersions_GoesOverTheHostFromTheBeginning) {
  Start(v1::NcclSupport::AUTO, 23007);
  Plan();
  EXPECT_EQ(Way(0), Exchange::HOST);
  EXPECT_EQ(Orders(0).groups_size(), 0);
}

TEST_F(ExchangeTest, Reshard_RequiredAndNotToBeHad_FailsOnAllRanks) {
  Start(v1::NcclSupport::REQUIRE, 23007);
  Plan();
  for (int rank = 0; rank < 2; ++rank) {
    const absl::Status error = StatusFromProto(Order(rank).error());
    EXPECT_TRUE(HasReason(error, Reason::kNcclUnavailable)) << error;
    EXPECT_TRUE(absl::StartsWith(NextActionOf(error), "Install one version of NCCL")) << NextActionOf(error);
  }
  EXPECT_EQ(Transport(), "") << "no byte has gone over gRPC";
}

TEST_F(ExchangeTest, Reshard_ARankHasNoRoomForIt_GoesOverTheHostAndTheGroupStays) {
  Plan();
  Join();
  refusal_[1] = "32.0 MiB of shared memory are needed";
  ReportCall(1, v1::Phase::READING, true);
  EXPECT_EQ(Way(0), Exchange::UNDECIDED) << "not all have staged";
  ReportCall(0, v1::Phase::READING, true);
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(Way(rank), Exchange::HOST);
  EXPECT_EQ(Transport(), "grpc (nccl: rank 1: 32.0 MiB of shared memory are needed)");
  EXPECT_EQ(Orders(0).groups_size(), 1) << "it is not at fault";
}

TEST_F(ExchangeTest, Reshard_ARankHasNoRoomForItWhileTheGroupIsBuilt_DoesNotWaitForTheGroup) {
  Plan();
  refusal_[0] = "no room";
  Stage();
  EXPECT_EQ(Way(1), Exchange::HOST);
  EXPECT_EQ(Order(1).exchange().reason(), "rank 0: no room");
}

TEST_F(ExchangeTest, Reshard_ARankHasNoRoomAndNcclIsRequired_FailsOnAllRanks) {
  Start(v1::NcclSupport::REQUIRE, 22809);
  Plan();
  Join();
  refusal_[1] = "no room";
  Stage();
  for (int rank = 0; rank < 2; ++rank) {
    const absl::Status error = StatusFromProto(Order(rank).error());
    EXPECT_TRUE(HasReason(error, Reason::kNcclUnavailable)) << error;
    EXPECT_TRUE(absl::StrContains(error.message(), "--nccl=require, but rank 1: no room")) << error;
  }
}

TEST_F(ExchangeTest, Reshard_NobodyWantsNccl_HasNothingToDecide) {
  StartJob(Options(), 2);
  for (int rank = 0; rank < 2; ++rank) Register(rank);
  Recover();
  for (int rank = 0; rank < 2; ++rank) ReportCall(rank, v1::Phase::PLANNING);
  Plan();
  EXPECT_EQ(Order(0).phase(), v1::Phase::READING);
  EXPECT_FALSE(Order(0).has_exchange());
}

TEST_F(ExchangeTest, Reshard_ARankFailsInTheExchange_BreaksTheGroupForTheNext) {
  Plan();
  Join();
  Stage();
  ReportCall(0, v1::Phase::FAILED, true, "window 3 has made no progress");
  Pass(absl::Seconds(2));
  for (int rank = 0; rank < 2; ++rank) {
    const absl::Status error = StatusFromProto(Order(rank).error());
    EXPECT_TRUE(HasReason(error, Reason::kTransportFailed)) << error;
    EXPECT_TRUE(absl::StartsWith(NextActionOf(error), "Reshard again on all ranks: the next one goes over gRPC."))
        << NextActionOf(error);
    EXPECT_EQ(Orders(rank).groups_size(), 0) << "all abort";
  }
}

TEST_F(ExchangeTest, Reshard_ARankFailsInTheExchangeAndNcclIsRequired_IsNotToldThatTheNextOneGoesOverTheHost) {
  Start(v1::NcclSupport::REQUIRE, 22809);
  Plan();
  Join();
  Stage();
  ReportCall(0, v1::Phase::FAILED, true, "window 3 has made no progress");
  Pass(absl::Seconds(2));
  const std::string next = NextActionOf(StatusFromProto(Order(1).error()));
  EXPECT_TRUE(absl::StrContains(next, "Reshard again once NCCL is tried again")) << next;
}

TEST_F(ExchangeTest, Reshard_FailsBeforeTheExchange_HasTheUsualNextAction) {
  Plan();
  ReportCall(0, v1::Phase::FAILED, false, "no answer");
  Pass(absl::Seconds(2));
  const absl::Status error = StatusFromProto(Order(0).error());
  EXPECT_TRUE(HasReason(error, Reason::kTransportFailed)) << error;
  EXPECT_FALSE(MetadataOf(error).contains("next")) << NextActionOf(error);
}

TEST_F(ExchangeTest, Reshard_GroupBreaksInTheExchangeAndNobodySaysWhy_EndsByItself) {
  Plan();
  Join();
  Stage();
  group_[1].set_phase(GroupState::BROKEN);
  group_[1].set_error("cairn-gpu-worker was ended by signal 9");
  ReportCall(1, v1::Phase::READING, true);
  EXPECT_EQ(Order(0).phase(), v1::Phase::READING) << "the agents may say why";
  Pass(absl::Seconds(3));
  const absl::Status error = StatusFromProto(Order(0).error());
  EXPECT_TRUE(HasReason(error, Reason::kTransportFailed));
  EXPECT_TRUE(absl::StrContains(error.message(), "has broken: rank 1: cairn-gpu-worker was ended")) << error;
}

class LoadExchangeTest : public ExchangeTest {
 protected:
  LoadExchangeTest() {
    reshard_ = false;
    Start(v1::NcclSupport::AUTO, 22809);
  }
};

TEST_F(LoadExchangeTest, Load_GroupIsReadyAndAllRead_GoesOverNccl) {
  Plan();
  EXPECT_EQ(Order(0).phase(), v1::Phase::READING) << "ranks read while the group is built";
  EXPECT_EQ(Way(0), Exchange::UNDECIDED);
  for (const bool joined : {false, true}) {
    for (int rank = 0; rank < 2; ++rank) {
      group_[rank].set_number(Orders(rank).groups(0).number());
      group_[rank].set_phase(joined ? GroupState::READY : GroupState::BUILDING);
      group_[rank].set_unique_id(rank == 0 && !joined ? std::string(128, 'i') : "");
      ReportCall(rank, rank == 0 ? v1::Phase::READING : v1::Phase::PLANNING);
    }
  }
  EXPECT_EQ(Way(0), Exchange::UNDECIDED) << "rank 1 does not lend yet";
  ReportCall(1, v1::Phase::READING);
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(Way(rank), Exchange::GROUP);
  EXPECT_EQ(Transport(), "nccl");
}

TEST_F(LoadExchangeTest, Load_ARankIsDoneBeforeTheGroupIsReady_GoesOverNccl) {
  Plan();
  ReportCall(0, v1::Phase::DONE);
  ReportCall(1, v1::Phase::READING);
  EXPECT_EQ(Way(0), Exchange::UNDECIDED);
  for (const bool joined : {false, true}) {
    for (int rank = 0; rank < 2; ++rank) {
      group_[rank].set_number(Orders(rank).groups(0).number());
      group_[rank].set_phase(joined ? GroupState::READY : GroupState::BUILDING);
      group_[rank].set_unique_id(rank == 0 && !joined ? std::string(128, 'i') : "");
      ReportCall(rank, rank == 0 ? v1::Phase::DONE : v1::Phase::READING);
    }
  }
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(Way(rank), Exchange::GROUP) << "it lends still";
}

TEST_F(LoadExchangeTest, Load_NothingIsTakenFromOtherMemory_HasNothingToDecide) {
  Plan(0);
  EXPECT_EQ(Order(0).phase(), v1::Phase::READING);
  EXPECT_FALSE(Order(0).has_exchange());
  EXPECT_EQ(Orders(0).groups_size(), 0);
}

TEST_F(LoadExchangeTest, Load_LittleIsToBeMoved_BuildsNoGroupForIt) {
  Plan(20 << 10);
  EXPECT_EQ(Way(0), Exchange::HOST);
  EXPECT_EQ(Transport(), "grpc (nccl: only 20.0 KiB to move)");
  EXPECT_EQ(Orders(0).groups_size(), 0);
}

TEST_F(LoadExchangeTest, Load_GroupIsNeverComplete_GoesOverTheHostAndNobodyIsLateForTheWait) {
  Plan();
  for (int rank = 0; rank < 2; ++rank) ReportCall(rank, v1::Phase::READING);
  PassIdly(Options().phase_timeout / 2 + absl::Seconds(1));
  EXPECT_EQ(Way(0), Exchange::HOST);
  PassIdly(Options().phase_timeout - absl::Seconds(2));
  EXPECT_EQ(Order(0).phase(), v1::Phase::READING) << Order(0).ShortDebugString();
  PassIdly(absl::Seconds(3));
  EXPECT_TRUE(HasReason(StatusFromProto(Order(0).error()), Reason::kRankLate)) << Order(0).ShortDebugString();
}

TEST_F(LoadExchangeTest, Load_RequiredAndNotToBeHad_FailsOnAllRanks) {
  Start(v1::NcclSupport::REQUIRE, 23007);
  Plan();
  for (int rank = 0; rank < 2; ++rank) {
    const absl::Status error = StatusFromProto(Order(rank).error());
    EXPECT_TRUE(HasReason(error, Reason::kNcclUnavailable)) << error;
    EXPECT_TRUE(absl::StartsWith(NextActionOf(error), "Install one version of NCCL")) << NextActionOf(error);
  }
}

TEST_F(LoadExchangeTest, Load_NobodyWantsNccl_AsksForNoBytesBetweenMachines) {
  StartJob(Options(), 2);
  for (int rank = 0; rank < 2; ++rank) Register(rank);
  StoredAttempt committed;
  committed.step = 7;
  committed.attempt = 1;
  committed.committed = true;
  Recover(StoredAttempts{committed});
  for (int rank = 0; rank < 2; ++rank) ReportCall(rank, v1::Phase::PLANNING);
  const std::optional<PlanLoad> asked = Take<PlanLoad>();
  ASSERT_TRUE(asked.has_value());
  EXPECT_TRUE(asked->memory.empty());
}

}  // namespace
}  // namespace cairn
