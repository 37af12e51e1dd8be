// Tests what ends a save, and whom the error names.
#include <string>

#include "common/status/reason.h"
#include "common/status/status_proto.h"
#include "coordinator/save/save.h"
#include "coordinator/save/save_view.h"
#include "coordinator/testing/part_test.h"

namespace cairn {
namespace {

constexpr int64_t kStep = 4;

class SaveFaultsTest : public PartTest {
 protected:
  SaveFaultsTest() {
    RegisterAll(3);
    for (int rank = 0; rank < 3; ++rank) PartTest::Report(rank, Trainer(TrainerOf(rank), LayoutOf(rank), 3));
  }

  static uint64_t TrainerOf(int rank) { return 50 + static_cast<uint64_t>(rank); }
  static std::string LayoutOf(int rank) { return "layout" + std::to_string(rank); }
  static v1::SaveState In(v1::Phase::Value phase, int rank) {
    v1::SaveState state;
    state.set_step(kStep);
    state.set_call(1);
    state.set_phase(phase);
    state.set_trainer_incarnation(TrainerOf(rank));
    state.set_layout_digest(LayoutOf(rank));
    return state;
  }
  // The rank's agent reports this of its call, and its trainer is attached.
  void Report(int rank, const v1::SaveState& state) {
    v1::AgentState agent = Trainer(TrainerOf(rank), LayoutOf(rank), kStep);
    *agent.add_saves() = state;
    (void)save_.Report(PartTest::Report(rank, agent), state, context_);
  }
  void Report(int rank, v1::Phase::Value phase) { Report(rank, In(phase, rank)); }
  void Fail(int rank, const absl::Status& error) {
    v1::SaveState state = In(v1::Phase::FAILED, rank);
    *state.mutable_error() = StatusToProto(error);
    Report(rank, state);
  }
  void BeginAll() {
    for (int rank = 0; rank < 3; ++rank) Report(rank, v1::Phase::PLANNING);
  }
  // The coordinator holds all layouts, and has planned them.
  void Plan() {
    for (int rank = 0; rank < 3; ++rank) layouts_.Add(LayoutOf(rank), 10);
    (void)save_.Advance({}, context_);
    const auto plan = Take<PlanSave>();
    ASSERT_TRUE(plan.has_value());
    plans_.OnPlanned(plan->key, PlannedSave{"plan", 1});
    (void)save_.Advance({}, context_);
  }
  void PassAndAdvance(absl::Duration time) {
    Pass(time);
    (void)save_.Advance({}, context_);
  }
  std::string RanksNamed() const {
    auto metadata = MetadataOf(save_.error());
    return metadata["ranks"];
  }

  Save save_{kStep, context_.now, context_.wall};
};

TEST_F(SaveFaultsTest, Deadline_OneRankHasNotBegun_NamesThatRank) {
  Report(0, v1::Phase::PLANNING);
  Report(2, v1::Phase::PLANNING);
  PassAndAdvance(absl::Seconds(19));
  EXPECT_TRUE(save_.error().ok());
  PassAndAdvance(absl::Seconds(1));
  EXPECT_TRUE(HasReason(save_.error(), Reason::kRankLate)) << save_.error();
  EXPECT_EQ(RanksNamed(), "1");
}

TEST_F(SaveFaultsTest, Deadline_ATrainerIsStopped_IsNamedAndNotThoseThatMayWaitForIt) {
  Report(0, v1::Phase::PLANNING);
  v1::AgentState stopped = Trainer(TrainerOf(1), LayoutOf(1), 3);
  Pass(absl::Seconds(9));
  stopped.mutable_trainer()->set_process(v1::JobRank::STOPPED);
  PartTest::Report(1, stopped);
  PartTest::Report(2, Trainer(TrainerOf(2), LayoutOf(2), 3));
  const v1::Checkpoint view = SaveView(save_).Checkpoint(context_);
  EXPECT_TRUE(view.ranks(1).late()) << "nothing can be expected of it";
  EXPECT_FALSE(view.ranks(2).late());
  // With a step towards the save, which it made before it was stopped, rank 2 alone would be late.
  stopped.mutable_trainer()->set_current_step(kStep);
  PartTest::Report(1, stopped);
  Pass(absl::Seconds(7));
  PartTest::Report(2, Trainer(TrainerOf(2), LayoutOf(2), 3));
  PassAndAdvance(absl::Seconds(4));
  EXPECT_TRUE(HasReason(save_.error(), Reason::kRankLate)) << save_.error();
  EXPECT_EQ(RanksNamed(), "1");
  EXPECT_NE(save_.error().message().find("its trainer's process has been stopped for 11s"), std::string::npos)
      << save_.error();
  EXPECT_NE(NextActionOf(save_.error()).find("SIGCONT"), std::string::npos) << NextActionOf(save_.error());
}

TEST_F(SaveFaultsTest, Errors_AnEarlierSaveHoldsTheMemory_NamesTheRankThatOneWaitsFor) {
  Save later(kStep + 1, context_.now, context_.wall);
  for (const int rank : {0, 2}) {
    v1::SaveState staged = In(v1::Phase::STAGED, rank);
    v1::SaveState waits = In(v1::Phase::FAILED, rank);
    waits.set_step(kStep + 1);
    *waits.mutable_error() = StatusToProto(MakeError(Reason::kSaveInProgress, "the slab was held"));
    v1::AgentState agent = Trainer(TrainerOf(rank), LayoutOf(rank), kStep);
    *agent.add_saves() = staged;
    *agent.add_saves() = waits;
    const Member& member = PartTest::Report(rank, agent);
    (void)save_.Report(member, staged, context_);
    (void)later.Report(member, waits, context_);
  }
  (void)later.Advance({&save_, kStep}, context_);
  Pass(kSaveFailureGrace);
  (void)later.Advance({&save_, kStep}, context_);
  EXPECT_TRUE(HasReason(later.error(), Reason::kSaveInProgress)) << later.error();
  EXPECT_EQ(MetadataOf(later.error())["ranks"], "1") << later.error();
  EXPECT_EQ(MetadataOf(later.error())["phase"], "waiting");
  EXPECT_NE(later.error().message().find("rank 1 holds up the save of step 4"), std::string::npos) << later.error();
}

TEST_F(SaveFaultsTest, View_ARankDoesNotComeForSeconds_SaysWhatIsKnownOfIt) {
  Report(0, v1::Phase::PLANNING);
  EXPECT_EQ(SaveView(save_).Checkpoint(context_).ranks(1).note(), "")
      << "ranks come within a second or two of each other";
  Pass(absl::Seconds(5));
  EXPECT_EQ(SaveView(save_).Checkpoint(context_).ranks(1).note(),
            "no progress for 5s, its trainer has not begun the save, last reported step 3, agent last heard 5s ago");
  EXPECT_FALSE(SaveView(save_).Checkpoint(context_).ranks(1).late());
}

TEST_F(SaveFaultsTest, View_AnIdleTrainerHasEnded_SaysForWhatTheSaveWaits) {
  Report(0, v1::Phase::PLANNING);
  (void)save_.Advance({}, context_);
  PartTest::Report(1, v1::AgentState());
  (void)save_.Advance({}, context_);
  Pass(absl::Seconds(3));
  EXPECT_NE(SaveView(save_).Checkpoint(context_).ranks(1).note().find(
                "its trainer ended 3s ago, and the next one has 7s left to attach "
                "before the save is given up"),
            std::string::npos)
      << SaveView(save_).Checkpoint(context_).ranks(1).note();
  PassAndAdvance(absl::Seconds(7));
  EXPECT_TRUE(HasReason(save_.error(), Reason::kTrainerLost)) << save_.error();
}

TEST_F(SaveFaultsTest, Deadline_ARankSavesAnotherStep_SaysWhich) {
  Report(0, v1::Phase::PLANNING);
  Report(2, v1::Phase::PLANNING);
  v1::AgentState agent = Trainer(TrainerOf(1), LayoutOf(1), kStep + 1);
  v1::SaveState other = In(v1::Phase::STAGED, 1);
  other.set_step(kStep + 1);
  *agent.add_saves() = other;
  PartTest::Report(1, agent);
  EXPECT_EQ(SaveView(save_).Checkpoint(context_).ranks(1).note(), "saves step 5");
  PassAndAdvance(absl::Seconds(20));
  EXPECT_NE(save_.error().message().find("rank 1: no progress for 20s, its trainer saves step 5"), std::string::npos)
      << save_.error();
}

TEST_F(SaveFaultsTest, Deadline_ARankIsInALoad_SaysSo) {
  Report(0, v1::Phase::PLANNING);
  Report(2, v1::Phase::PLANNING);
  v1::AgentState agent = Trainer(TrainerOf(1), LayoutOf(1));
  agent.add_loads()->set_phase(v1::Phase::PLANNING);
  PartTest::Report(1, agent);
  PassAndAdvance(absl::Seconds(20));
  EXPECT_NE(save_.error().message().find("rank 1: no progress for 20s, its trainer is in a load"), std::string::npos)
      << save_.error();
}

TEST_F(SaveFaultsTest, Deadline_ARanksAgentIsSilent_SaysNothingOfItsTrainer) {
  Report(0, v1::Phase::PLANNING);
  Report(2, v1::Phase::PLANNING);
  PassAndAdvance(absl::Seconds(20));
  EXPECT_NE(save_.error().message().find("its agent has not answered for 20s"), std::string::npos) << save_.error();
  EXPECT_EQ(save_.error().message().find("has not begun"), std::string::npos) << save_.error();
}

TEST_F(SaveFaultsTest, View_ARankStillWritesAnEarlierStep_IsOnItsWay) {
  Report(0, v1::Phase::PLANNING);
  v1::AgentState agent = Trainer(TrainerOf(1), LayoutOf(1), kStep - 1);
  v1::SaveState earlier = In(v1::Phase::WRITING, 1);
  earlier.set_step(kStep - 1);
  earlier.set_attempt(1);
  *agent.add_saves() = earlier;
  PartTest::Report(1, agent);
  EXPECT_EQ(SaveView(save_).Checkpoint(context_).ranks(1).note(), "");
}

TEST_F(SaveFaultsTest, Deadline_ATrainerComesNearerToTheStep_IsSlowAndNotLate) {
  Report(0, v1::Phase::PLANNING);
  Report(1, v1::Phase::PLANNING);
  Pass(absl::Seconds(15));
  PartTest::Report(2, Trainer(TrainerOf(2), LayoutOf(2), kStep));
  PassAndAdvance(absl::Seconds(15));
  EXPECT_TRUE(save_.error().ok()) << save_.error();
  PassAndAdvance(absl::Seconds(5));
  EXPECT_EQ(RanksNamed(), "2");
}

TEST_F(SaveFaultsTest, Deadline_ARankWaitsForShardsOfAnother_OnlyTheOtherIsNamed) {
  BeginAll();
  Plan();
  v1::SaveState waits = In(v1::Phase::PLANNING, 0);
  waits.add_awaited_ranks(2);
  Report(0, waits);
  Report(1, v1::Phase::STAGED);
  PassAndAdvance(absl::Seconds(20));
  EXPECT_TRUE(HasReason(save_.error(), Reason::kRankLate)) << save_.error();
  EXPECT_EQ(RanksNamed(), "2") << "rank 0 only waits, and rank 1 has staged";
}

TEST_F(SaveFaultsTest, Checkpoint_ARankReportsNumbersThatCannotBe_ShowsNone) {
  BeginAll();
  Plan();
  v1::SaveState waits = In(v1::Phase::PLANNING, 0);
  waits.set_bytes_done(~uint64_t{0});
  waits.set_bytes_total(~uint64_t{0});
  for (const uint32_t rank : {~uint32_t{0}, uint32_t{2}, uint32_t{1} << 31, uint32_t{3}}) waits.add_awaited_ranks(rank);
  Report(0, waits);
  EXPECT_EQ(SaveView(save_).Checkpoint(context_).ranks(0).note(), "waits for shards of rank 2");
  Report(1, v1::Phase::STAGED);
  Report(2, v1::Phase::STAGED);
  PassAndAdvance(absl::Seconds(20));
  EXPECT_EQ(RanksNamed(), "0");
  EXPECT_EQ(save_.error().message().find('-'), absl::string_view::npos) << save_.error();
}

TEST_F(SaveFaultsTest, Deadline_TheRequestsTimeout_NamesThoseThatAreAwaited) {
  save_.AddRequest("request", context_.now + absl::Seconds(5));
  Report(0, v1::Phase::PLANNING);
  PassAndAdvance(absl::Seconds(5));
  EXPECT_TRUE(HasReason(save_.error(), Reason::kRankLate)) << save_.error();
  EXPECT_EQ(RanksNamed(), "1, 2");
}

TEST_F(SaveFaultsTest, Deadline_AnEarlierSaveWaitsForStorage_NamesStorage) {
  save_.AddRequest("request", context_.now + absl::Seconds(5));
  context_.stalled_step = kStep - 1;
  PassAndAdvance(absl::Seconds(5));
  EXPECT_TRUE(HasReason(save_.error(), Reason::kStorageStalled)) << save_.error();
  EXPECT_EQ(RanksNamed(), "");
}

TEST_F(SaveFaultsTest, Deadline_StorageGivesNoNumber_NamesStorage) {
  BeginAll();
  Plan();
  ASSERT_TRUE(Take<ReserveAttempt>().has_value());
  for (int rank = 0; rank < 3; ++rank) Report(rank, v1::Phase::STAGED);
  PassAndAdvance(options_.storage_patience() - absl::Seconds(1));
  EXPECT_TRUE(save_.error().ok()) << save_.error();
  PassAndAdvance(absl::Seconds(1));
  EXPECT_TRUE(HasReason(save_.error(), Reason::kStorageStalled)) << save_.error();
}

TEST_F(SaveFaultsTest, Errors_TwoRanksWithinTheGrace_AreReportedTogether) {
  BeginAll();
  Fail(0, MakeError(Reason::kNoSpace, "disk full"));
  (void)save_.Advance({}, context_);
  EXPECT_TRUE(save_.error().ok()) << "others may fail for the same cause";
  Fail(2, MakeError(Reason::kNoSpace, "disk full"));
  PassAndAdvance(kSaveFailureGrace);
  EXPECT_TRUE(HasReason(save_.error(), Reason::kNoSpace)) << save_.error();
  EXPECT_EQ(RanksNamed(), "0, 2");
}

TEST_F(SaveFaultsTest, Errors_ARankCouldNotReachAnother_NamesTheOther) {
  BeginAll();
  Fail(0, MakeError(Reason::kTransportFailed, "cannot reach rank 2", {{"ranks", "2"}}));
  (void)save_.Advance({}, context_);
  PassAndAdvance(kSaveFailureGrace);
  EXPECT_TRUE(HasReason(save_.error(), Reason::kTransportFailed)) << save_.error();
  EXPECT_EQ(RanksNamed(), "2");
}

TEST_F(SaveFaultsTest, Errors_ARankGaveUpWaiting_NamesThoseThatItWaitedFor) {
  Report(0, v1::Phase::PLANNING);
  Report(1, v1::Phase::PLANNING);
  Fail(0, MakeError(Reason::kTimedOut, "its timeout is over"));
  (void)save_.Advance({}, context_);
  PassAndAdvance(kSaveFailureGrace);
  EXPECT_TRUE(HasReason(save_.error(), Reason::kRankLate)) << save_.error();
  EXPECT_EQ(RanksNamed(), "2");
}

TEST_F(SaveFaultsTest, Members_TheTrainerOfACallEnded_NamesItsRank) {
  BeginAll();
  PartTest::Report(1, v1::AgentState());
  (void)save_.Advance({}, context_);
  EXPECT_TRUE(HasReason(save_.error(), Reason::kTrainerLost)) << save_.error();
  EXPECT_EQ(RanksNamed(), "1");
}

TEST_F(SaveFaultsTest, Members_NoTrainerTakesThePlaceOfOneThatHadNotBegun_IsWaitedForALease) {
  Report(0, v1::Phase::PLANNING);
  (void)save_.Advance({}, context_);  // sees the trainer of rank 1
  PartTest::Report(1, v1::AgentState());
  (void)save_.Advance({}, context_);
  PassAndAdvance(options_.lease_ttl - absl::Seconds(1));
  EXPECT_TRUE(save_.error().ok()) << save_.error();
  PassAndAdvance(absl::Seconds(1));
  EXPECT_TRUE(HasReason(save_.error(), Reason::kTrainerLost)) << save_.error();
  EXPECT_EQ(RanksNamed(), "1");
}

TEST_F(SaveFaultsTest, Members_AnAgentWasRestarted_IsLost) {
  BeginAll();
  v1::RegisterAgentRequest request;
  *request.mutable_agent() = Identity(1);
  request.mutable_agent()->set_incarnation(99);
  request.add_predecessors(Identity(1).incarnation());
  request.set_world_size(3);
  ASSERT_TRUE(members_.Register(request, context_.now).ok());
  (void)save_.Advance({}, context_);
  EXPECT_TRUE(HasReason(save_.error(), Reason::kRankLost)) << save_.error();
  EXPECT_EQ(RanksNamed(), "1");
}

}  // namespace
}  // namespace cairn
