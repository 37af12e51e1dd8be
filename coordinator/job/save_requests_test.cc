#include "coordinator/job/save_requests.h"

#include "common/status/reason.h"
#include "common/status/status_proto.h"
#include "coordinator/testing/part_test.h"

namespace cairn {
namespace {

class SaveRequestsTest : public PartTest {
 protected:
  SaveRequestsTest() {
    RegisterAll(2);
    for (int rank = 0; rank < 2; ++rank) Step(rank, 10);
  }

  // The rank's trainer is at this step.
  void Step(int rank, int64_t step, uint64_t trainer = 50) {
    (void)requests_.OnReport(Report(rank, Trainer(trainer, "", step)), context_);
  }
  absl::Status Ask(const std::string& id, std::optional<int64_t> step = std::nullopt,
                   std::optional<int64_t> timeout = std::nullopt) {
    v1::CreateCheckpointRequest request;
    request.set_request_id(id);
    if (step.has_value()) request.set_step(*step);
    if (timeout.has_value()) request.mutable_timeout()->set_seconds(*timeout);
    const absl::Status added = requests_.Add(request, saves_, context_);
    Advance();
    return added;
  }
  void Advance() {
    context_.stalled_step = saves_.StalledStep();
    (void)requests_.Advance(saves_, outcomes_, context_);
  }
  // Lets time pass as the job's ticks do.
  void PassSlowly(absl::Duration time) {
    for (; time > absl::ZeroDuration(); time -= absl::Seconds(1)) {
      Pass(absl::Seconds(1));
      Advance();
    }
  }
  // Both ranks answer the order that stands. Their trainers are at this step.
  void Answer(v1::ArmState::Status answer, int64_t at = 10) {
    for (int rank = 0; rank < 2; ++rank) {
      v1::AgentState state = Trainer(50, "", at);
      state.mutable_arm()->set_number(requests_.Order()->number());
      state.mutable_arm()->set_step(requests_.Order()->step());
      state.mutable_arm()->set_status(answer);
      (void)requests_.OnReport(Report(rank, state), context_);
    }
  }
  // Both ranks do what they are ordered: they arm, and then agree.
  void Agree() {
    for (const v1::ArmState::Status answer : {v1::ArmState::ARMED, v1::ArmState::AGREED}) {
      Answer(answer);
      Advance();
    }
  }
  v1::Checkpoint ViewOf(const std::string& id) const {
    const SaveRequest* request = requests_.Find(CheckpointKey{std::nullopt, id});
    return request == nullptr ? v1::Checkpoint() : requests_.View(*request, context_);
  }
  std::optional<Reason> Why(const std::string& id) const { return ReasonOf(StatusFromProto(ViewOf(id).error())); }

  Saves saves_;
  OutcomeBook outcomes_;
  SaveRequests requests_;
};

TEST_F(SaveRequestsTest, Advance_RanksAgree_TheSaveOfThatStepAnswersIt) {
  ASSERT_TRUE(Ask("r").ok());
  EXPECT_EQ(ViewOf("r").state(), v1::Phase::PREPARING);
  EXPECT_TRUE(requests_.agreeing());
  Agree();
  ASSERT_TRUE(ViewOf("r").has_step()) << "the ranks have agreed";
  Save& save = saves_.Begin(ViewOf("r").step(), context_);
  (void)requests_.OnSaveBegun(save, context_);
  Advance();
  EXPECT_TRUE(save.HasRequest("r"));
  EXPECT_EQ(requests_.Find(CheckpointKey{std::nullopt, "r"}), nullptr) << "the save answers now";
  EXPECT_TRUE(requests_.Contains("r"));
  EXPECT_FALSE(requests_.waiting());
}

TEST_F(SaveRequestsTest, Advance_ATrainerIsStopped_ItAloneIsBlamedAtTheTimeout) {
  ASSERT_TRUE(Ask("r", std::nullopt, 8).ok());
  Agree();
  v1::AgentState stopped = Trainer(50, "", 10);
  stopped.mutable_trainer()->set_process(v1::JobRank::STOPPED);
  Report(1, stopped);
  PassSlowly(absl::Seconds(2));
  EXPECT_TRUE(ViewOf("r").ranks(1).late());
  EXPECT_NE(ViewOf("r").ranks(1).note().find("stopped for 2s"), std::string::npos) << ViewOf("r").ranks(1).note();
  EXPECT_FALSE(ViewOf("r").ranks(0).late()) << "it may wait for rank 1";
  Report(0, Trainer(50, "", 10));
  PassSlowly(absl::Seconds(6));
  const absl::Status error = StatusFromProto(ViewOf("r").error());
  EXPECT_TRUE(HasReason(error, Reason::kRankLate)) << error;
  EXPECT_EQ(MetadataOf(error)["ranks"], "1") << error;
  EXPECT_NE(error.message().find("its trainer's process has been stopped for 8s"), std::string::npos) << error;
}

TEST_F(SaveRequestsTest, Add_StepThatARankHasPassed_IsRefused) {
  Step(1, 20);
  const absl::Status refused = Ask("r", 15);
  EXPECT_TRUE(HasReason(refused, Reason::kStepPassed)) << refused;
  EXPECT_EQ(MetadataOf(refused)["ranks"], "1");
  EXPECT_FALSE(requests_.Contains("r"));
  saves_.Begin(15, context_);
  EXPECT_TRUE(Ask("r", 15).ok()) << "a save of the step is under way";
  EXPECT_TRUE(saves_.Active(15)->HasRequest("r"));
}

TEST_F(SaveRequestsTest, Advance_AnotherSaveIsUnderWay_WaitsForItsEnd) {
  saves_.Begin(9, context_);
  ASSERT_TRUE(Ask("r").ok());
  EXPECT_FALSE(requests_.agreeing());
  saves_.Cancel(CheckpointKey{}, context_);
  (void)saves_.Advance(context_);
  Advance();
  EXPECT_TRUE(requests_.agreeing());
}

TEST_F(SaveRequestsTest, Advance_TimeoutPassesBehindAnotherSave_BlamesNoRank) {
  saves_.Begin(9, context_);
  ASSERT_TRUE(Ask("r", std::nullopt, 3).ok());
  PassSlowly(absl::Seconds(3));
  EXPECT_EQ(Why("r"), Reason::kSaveInProgress);
  const absl::Status error = StatusFromProto(ViewOf("r").error());
  EXPECT_EQ(MetadataOf(error).count("ranks"), 0u);
  EXPECT_NE(error.message().find("the save of step 9 did not end"), std::string::npos) << error;
}

TEST_F(SaveRequestsTest, Advance_RankDoesNotAnswer_IsNamed) {
  ASSERT_TRUE(Ask("r").ok());
  PassSlowly(options_.phase_timeout);
  EXPECT_EQ(Why("r"), Reason::kRankLate);
  EXPECT_FALSE(requests_.waiting());
}

TEST_F(SaveRequestsTest, Advance_WorldIsNotComplete_EndsWithTheAbsentRanks) {
  members_.Remove(1);
  ASSERT_TRUE(Ask("r").ok());
  PassSlowly(options_.phase_timeout);
  EXPECT_EQ(Why("r"), Reason::kWorldIncomplete);
  EXPECT_EQ(MetadataOf(StatusFromProto(ViewOf("r").error()))["ranks"], "1");
}

TEST_F(SaveRequestsTest, OnMember_TrainerEnded_MakesAStepPossible) {
  ASSERT_TRUE(Ask("r").ok());
  EXPECT_FALSE(requests_.OnMember(1, context_).step);
  Step(1, 10, /*trainer=*/51);
  EXPECT_TRUE(requests_.OnMember(1, context_).step);
  Advance();
  EXPECT_EQ(Why("r"), Reason::kTrainerLost);
}

TEST_F(SaveRequestsTest, OnLost_RequestWaits_EndsWithIt) {
  ASSERT_TRUE(Ask("r").ok());
  members_.Remove(1);
  (void)requests_.OnLost({1}, context_);
  EXPECT_EQ(Why("r"), Reason::kRankLost);
}

TEST_F(SaveRequestsTest, OnSaveBegun_RequestWasCancelledAfterTheAgreement_TakesTheSaveWithIt) {
  ASSERT_TRUE(Ask("r").ok());
  Agree();
  const int64_t step = ViewOf("r").step();
  requests_.Cancel(CheckpointKey{std::nullopt, "r"}, context_);
  EXPECT_EQ(Why("r"), Reason::kSaveCancelled);
  Save& other = saves_.Begin(step + 1, context_);
  (void)requests_.OnSaveBegun(other, context_);
  EXPECT_EQ(other.phase(), v1::Phase::COLLECTING);
  Save& save = saves_.Begin(step, context_);
  (void)requests_.OnSaveBegun(save, context_);
  EXPECT_EQ(save.phase(), v1::Phase::ABORTING);
}

TEST_F(SaveRequestsTest, OnSaveBegun_AnotherAskerHasEnded_TheSaveAnswersTheOneThatWaits) {
  ASSERT_TRUE(Ask("patient").ok());
  ASSERT_TRUE(Ask("hasty", std::nullopt, 5).ok());
  Agree();
  const int64_t step = ViewOf("patient").step();
  ASSERT_EQ(ViewOf("hasty").step(), step);
  PassSlowly(absl::Seconds(5));
  EXPECT_EQ(Why("hasty"), Reason::kRankLate);
  Save& save = saves_.Begin(step, context_);
  (void)requests_.OnSaveBegun(save, context_);
  EXPECT_EQ(save.phase(), v1::Phase::COLLECTING) << "somebody still wants it";
  EXPECT_TRUE(save.HasRequest("patient"));
  EXPECT_FALSE(save.HasRequest("hasty"));
  EXPECT_EQ(Why("hasty"), Reason::kRankLate);
}

TEST_F(SaveRequestsTest, OnSaveBegun_TheSaveEndsAtOnce_ItsOutcomeAnswersTheRequest) {
  ASSERT_TRUE(Ask("r").ok());
  Agree();
  Save& save = saves_.Begin(ViewOf("r").step(), context_);
  (void)requests_.OnSaveBegun(save, context_);
  saves_.Cancel(CheckpointKey{}, context_);
  (void)saves_.Advance(context_);
  ASSERT_TRUE(save.ended());
  Advance();
  EXPECT_FALSE(requests_.waiting());
  EXPECT_EQ(saves_.Find(CheckpointKey{std::nullopt, "r"}), &save);
}

// The ranks may act on the step before the coordinator knows that all have agreed.
TEST_F(SaveRequestsTest, Advance_SaveOfTheStepEndedBeforeAllHadAgreed_AgreesOnALaterStep) {
  ASSERT_TRUE(Ask("r").ok());
  const int64_t step = requests_.Order()->step();
  Answer(v1::ArmState::ARMED);
  Advance();
  Save& save = saves_.Begin(step, context_);
  (void)requests_.OnSaveBegun(save, context_);
  saves_.Cancel(CheckpointKey{}, context_);
  (void)saves_.Advance(context_);
  ASSERT_TRUE(save.ended());
  Answer(v1::ArmState::AGREED, step);
  Advance();
  EXPECT_EQ(ViewOf("r").state(), v1::Phase::PREPARING);
  EXPECT_FALSE(ViewOf("r").has_step()) << "nobody begins step " << ViewOf("r").step() << " again";
  ASSERT_TRUE(requests_.Order().has_value());
  EXPECT_GT(requests_.Order()->step(), step);
}

TEST_F(SaveRequestsTest, Advance_TrainersPassTheAgreedStepWithoutASave_EndsAfterThePhaseTimeout) {
  ASSERT_TRUE(Ask("r").ok());
  Agree();
  const int64_t step = ViewOf("r").step();
  for (absl::Duration time; time < options_.phase_timeout; time += absl::Seconds(1)) {
    for (int rank = 0; rank < 2; ++rank) Step(rank, step + 1 + time / absl::Seconds(1));
    PassSlowly(absl::Seconds(1));
  }
  EXPECT_EQ(Why("r"), Reason::kRankLate);
}

// Its agents still tell what they last agreed on.
TEST_F(SaveRequestsTest, Advance_AgreementOfAnEarlierCoordinatorIsOver_AgreesOnALaterStep) {
  for (int rank = 0; rank < 2; ++rank) {
    v1::AgentState state = Trainer(50, "", 55);
    state.mutable_arm()->set_number((uint64_t{77} << 32) | 1);
    state.mutable_arm()->set_step(13);
    state.mutable_arm()->set_status(v1::ArmState::AGREED);
    (void)requests_.OnReport(Report(rank, state), context_);
  }
  ASSERT_TRUE(Ask("r").ok());
  ASSERT_TRUE(requests_.Order().has_value());
  EXPECT_EQ(requests_.Order()->action(), v1::ArmOrder::ARM);
  EXPECT_GT(requests_.Order()->step(), 55);
  EXPECT_FALSE(ViewOf("r").has_step());
}

TEST_F(SaveRequestsTest, Advance_AFarStepIsAgreedOn_AnEarlierSaveComesFirst) {
  for (const std::optional<int64_t> wanted : {std::optional<int64_t>(), std::optional<int64_t>(40)}) {
    requests_ = SaveRequests();
    ASSERT_TRUE(Ask("far", 5000).ok());
    Agree();
    EXPECT_EQ(requests_.Order()->action(), v1::ArmOrder::AGREE);
    ASSERT_TRUE(Ask("now", wanted).ok());
    EXPECT_EQ(requests_.Order()->action(), v1::ArmOrder::DISARM);
    EXPECT_EQ(requests_.Order()->step(), 5000);
    Answer(v1::ArmState::DISARMED);
    Advance();
    ASSERT_EQ(requests_.Order()->action(), v1::ArmOrder::ARM);
    EXPECT_LE(requests_.Order()->step(), 40);
    Agree();
    const int64_t step = ViewOf("now").step();
    EXPECT_LE(step, 40);
    (void)requests_.OnSaveBegun(saves_.Begin(step, context_), context_);
    Advance();
    EXPECT_TRUE(saves_.Active(step)->HasRequest("now"));
    saves_.Cancel(CheckpointKey{}, context_);
    (void)saves_.Advance(context_);
    for (int rank = 0; rank < 2; ++rank) Step(rank, step + 1);
    Advance();
    EXPECT_EQ(requests_.Order()->action(), v1::ArmOrder::ARM) << "now it is the far one's turn";
    EXPECT_EQ(requests_.Order()->step(), 5000);
    EXPECT_EQ(ViewOf("far").state(), v1::Phase::PREPARING);
    for (int rank = 0; rank < 2; ++rank) Step(rank, 10, 50);
  }
}

TEST_F(SaveRequestsTest, Advance_ANearStepIsAgreedOn_ItsSaveAnswersAll) {
  ASSERT_TRUE(Ask("near", 11).ok());
  Agree();
  ASSERT_TRUE(Ask("now").ok());
  EXPECT_EQ(requests_.Order()->action(), v1::ArmOrder::AGREE);
  EXPECT_EQ(ViewOf("now").step(), 11);
}

TEST_F(SaveRequestsTest, Cancel_SeveralAskForTheSave_EndsThemAll) {
  ASSERT_TRUE(Ask("first", 9000).ok());
  ASSERT_TRUE(Ask("second", 9000).ok());
  ASSERT_TRUE(Ask("other", 9500).ok());
  requests_.Cancel(CheckpointKey{std::nullopt, "first"}, context_);
  Advance();
  EXPECT_EQ(Why("first"), Reason::kSaveCancelled);
  EXPECT_EQ(Why("second"), Reason::kSaveCancelled);
  EXPECT_EQ(ViewOf("other").state(), v1::Phase::PREPARING) << "it is another save";
}

TEST_F(SaveRequestsTest, Cancel_SeveralAskBeforeTheRanksAgree_EndsThemAll) {
  ASSERT_TRUE(Ask("first").ok());
  ASSERT_TRUE(Ask("second", std::nullopt, 60).ok());
  requests_.Cancel(CheckpointKey{std::nullopt, "second"}, context_);
  Advance();
  EXPECT_EQ(Why("first"), Reason::kSaveCancelled);
  EXPECT_EQ(Why("second"), Reason::kSaveCancelled);
  EXPECT_FALSE(requests_.waiting());
}

TEST_F(SaveRequestsTest, Shown_RequestFailed_IsShownUntilASaveBegins) {
  (void)requests_.OnSaveBegun(saves_.Begin(98, context_), context_);
  ASSERT_TRUE(Ask("first").ok());
  requests_.Cancel(CheckpointKey{}, context_);
  ASSERT_NE(requests_.Shown(), nullptr);
  EXPECT_EQ(requests_.Shown()->id, "first");
  ASSERT_TRUE(Ask("second").ok());
  EXPECT_EQ(requests_.Shown()->id, "second") << "it waits";
  requests_.Cancel(CheckpointKey{}, context_);
  EXPECT_EQ(requests_.Shown()->id, "second") << "it ended last";
  (void)requests_.OnSaveBegun(saves_.Begin(99, context_), context_);
  EXPECT_EQ(requests_.Shown(), nullptr);
}

TEST_F(SaveRequestsTest, Advance_StepIsCommittedAlready_EndsTheRequest) {
  outcomes_.Keep(Outcome(15, 1, true));
  ASSERT_TRUE(Ask("r", 15).ok());
  EXPECT_EQ(Why("r"), Reason::kStepCommitted);
}

// A training that went back agrees on a step that it had committed before it went back.
TEST_F(SaveRequestsTest, Advance_AgreedStepWasCommittedBeforeTheRequest_WaitsForTheSave) {
  for (int64_t step = 11; step < 30; ++step) outcomes_.Keep(Outcome(step, 1, true));
  ASSERT_TRUE(Ask("r").ok());
  Agree();
  ASSERT_TRUE(ViewOf("r").has_step());
  EXPECT_EQ(ViewOf("r").state(), v1::Phase::PREPARING);
  StoredAttempt now = Outcome(ViewOf("r").step(), 2, true);
  now.lineage.sequence = 1;
  outcomes_.Keep(now);
  Advance();
  EXPECT_EQ(Why("r"), Reason::kStepCommitted);
}

TEST_F(SaveRequestsTest, Forget_ManyHaveEnded_KeepsTheLastAndThoseThatWait) {
  ASSERT_TRUE(Ask("waits", 1000).ok());
  for (int i = 0; i < 100; ++i) {
    const std::string id = std::to_string(i);
    ASSERT_TRUE(Ask(id).ok());
    requests_.Cancel(CheckpointKey{std::nullopt, id}, context_);
  }
  requests_.Forget();
  EXPECT_TRUE(requests_.Contains("waits"));
  EXPECT_FALSE(requests_.Contains("36"));
  EXPECT_TRUE(requests_.Contains("37"));
  EXPECT_TRUE(requests_.Contains("99"));
}

}  // namespace
}  // namespace cairn
