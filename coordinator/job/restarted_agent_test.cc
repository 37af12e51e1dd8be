// An agent that restarts during a save: what ends by it, what its trainer and the others are told.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/status/reason.h"
#include "common/status/status_proto.h"
#include "coordinator/testing/job_fixture.h"

namespace cairn {
namespace {

constexpr int64_t kStep = 10;

class RestartedAgentTest : public JobFixture {
 protected:
  // Returns whether the rank's agent hears at once of what has changed since this was asked last.
  bool IsWoken(int rank) {
    const Job::Woken woken = core_->TakeWoken();
    return woken.all || std::find(woken.ranks.begin(), woken.ranks.end(), rank) != woken.ranks.end();
  }
  RestartedAgentTest() { Start(StoredAttempts()); }

  // A coordinator that finds this in storage, and its agents.
  void Start(const StoredAttempts& recovered) {
    DecisionOptions options = Options();
    options.coordinator_epoch = ++epoch_;
    StartJob(options);
    for (int rank = 0; rank < 2; ++rank) Register(rank);
    Recover(recovered);
  }
  void Report(int rank, const std::vector<v1::SaveState>& saves = {}) {
    JobFixture::Report(rank, Trainer(rank), saves);
  }
  static v1::SaveState State(int rank, v1::Phase::Value phase, uint64_t call = 1) {
    return phase == v1::Phase::PLANNING ? Begun(rank, kStep, call) : InAttempt(rank, kStep, phase, call);
  }
  static v1::SaveState Asked(uint32_t attempt, uint64_t number = 9) {
    v1::SaveState state;
    state.set_step(kStep);
    state.set_attempt(attempt);
    state.set_call(number);
    state.set_phase(v1::Phase::ASKED);
    return state;
  }
  static v1::SaveState AskedByNumber(uint64_t save, uint64_t number = 9) {
    v1::SaveState state = Asked(0, number);
    state.set_save(save);
    return state;
  }
  // The order that answers this call.
  v1::SaveOrder AnswerTo(int rank, uint64_t call = 1) {
    const v1::SynchronizeAgentResponse orders = job().OrdersFor(rank, At());
    for (const v1::SaveOrder& order : orders.saves()) {
      if (order.call() == call || order.call() == 0) return order;
    }
    return {};
  }
  static std::string RanksOf(const v1::SaveOrder& order) { return MetadataOf(StatusFromProto(order.error()))["ranks"]; }
  static StoredAttempt Outcome(uint32_t attempt, bool committed, absl::Status error = absl::OkStatus()) {
    StoredAttempt outcome;
    outcome.step = kStep;
    outcome.attempt = attempt;
    outcome.committed = committed;
    outcome.error = std::move(error);
    outcome.bytes = 123;
    return outcome;
  }
  // The abort of attempt 1 runs to its end; only rank 0 has an agent that was in it.
  void FinishAbort() {
    const auto abort_record = Take<PutOutcome>();
    ASSERT_TRUE(abort_record.has_value());
    ASSERT_EQ(abort_record->manifest, nullptr);
    job().OnOutcome(kStep, abort_record->ticket, PutAnswer{Outcome(1, false, abort_record->error)}, At());
    Report(0, {State(0, v1::Phase::STOPPED)});
    const auto remove = Take<RemoveFiles>();
    ASSERT_TRUE(remove.has_value());
    job().OnRemoved(kStep, remove->ticket, absl::OkStatus(), At());
  }

  uint64_t epoch_ = 0;
};

TEST_F(RestartedAgentTest, Attempt_AgentRestarts_EndsAtOnceAndNamesTheRank) {
  Number(kStep);
  Report(1, {State(1, v1::Phase::STAGED)});
  Restart(1);
  const v1::SaveOrder order = AnswerTo(0);
  EXPECT_EQ(order.phase(), v1::Phase::ABORTING);
  EXPECT_EQ(ErrorOf(order), Reason::kRankLost);
  EXPECT_EQ(RanksOf(order), "1");
}

TEST_F(RestartedAgentTest, Attempt_DurableRankRestarts_IsNeededAsLongAsAnotherWaitsForItsShards) {
  for (const bool waits : {false, true}) {
    Start(StoredAttempts());
    Number(kStep);
    Report(1, {State(1, v1::Phase::WRITTEN)});
    v1::SaveState writing = State(0, v1::Phase::WRITING);
    if (waits) writing.add_awaited_ranks(1);
    Report(0, {writing});
    Restart(1);
    const v1::SaveOrder order = AnswerTo(0);
    EXPECT_EQ(order.phase(), waits ? v1::Phase::ABORTING : v1::Phase::WRITING);
    if (waits) {
      EXPECT_EQ(ErrorOf(order), Reason::kRankLost);
      EXPECT_EQ(RanksOf(order), "1");
    }
  }
}

TEST_F(RestartedAgentTest, Request_WaitsForAgreement_EndsToo) {
  v1::CreateCheckpointRequest request;
  request.set_job(kJob);
  request.set_request_id("r");
  ASSERT_TRUE((*job().Create(request, false, At())).ok());
  Restart(1);
  const auto view = job().Get({std::nullopt, "r"}, 0, At());
  ASSERT_TRUE(view.has_value() && view->ok());
  EXPECT_TRUE(HasReason(StatusFromProto((*view)->error()), Reason::kRankLost)) << (*view)->ShortDebugString();
}

TEST_F(RestartedAgentTest, AskedSave_SaveIsLive_HearsItsOutcomeWhenAllDo) {
  Number(kStep);
  Report(1, {State(1, v1::Phase::STAGED)});
  Restart(1);
  Report(1, {Asked(1)});
  EXPECT_EQ(AnswerTo(1, 9).phase(), v1::Phase::WAITING);
  FinishAbort();
  const v1::SaveOrder told = AnswerTo(1, 9);
  EXPECT_EQ(told.phase(), v1::Phase::ABORTED);
  EXPECT_EQ(told.attempt(), 1u);
  EXPECT_EQ(ErrorOf(told), Reason::kRankLost);
  EXPECT_EQ(RanksOf(told), "1");
  EXPECT_EQ(told.error().message(), AnswerTo(0).error().message()) << "all hear the same";
}

TEST_F(RestartedAgentTest, AskedSave_ItsFilesAreDurable_IsToldOfTheCommit) {
  Number(kStep);
  for (int rank = 0; rank < 2; ++rank) Report(rank, {State(rank, v1::Phase::WRITTEN)});
  Restart(1);
  Report(1, {Asked(1)});
  EXPECT_EQ(AnswerTo(1, 9).phase(), v1::Phase::WAITING);
  const auto make = Take<MakeManifest>();
  ASSERT_TRUE(make.has_value());
  job().OnManifest(kStep, make->ticket, MadeManifest{std::make_shared<std::string>("m"), 1}, At());
  const auto put = Take<PutOutcome>();
  ASSERT_TRUE(put.has_value());
  core_->TakeWoken();
  job().OnOutcome(kStep, put->ticket, PutAnswer{Outcome(1, true)}, At());
  EXPECT_TRUE(IsWoken(1)) << "whoever waits for orders is woken";
  EXPECT_EQ(AnswerTo(1, 9).phase(), v1::Phase::COMMITTED);
  EXPECT_EQ(AnswerTo(1, 9).bytes(), 123u);
  EXPECT_EQ(AnswerTo(1, 9).directory(), "demo/000000000010/0001");
}

TEST_F(RestartedAgentTest, AskedSave_ByItsNumber_HearsTheOutcomeOfAll) {
  Number(kStep);
  v1::SaveState writing = State(1, v1::Phase::WRITING);
  writing.set_save(70);
  Report(1, {writing});
  Restart(1);
  // Its trainer had not heard of the attempt.
  Report(1, {AskedByNumber(70), AskedByNumber(71, 10)});
  EXPECT_EQ(AnswerTo(1, 9).phase(), v1::Phase::WAITING);
  EXPECT_EQ(AnswerTo(1, 10).phase(), v1::Phase::UNKNOWN) << "another save of the step says nothing of this one";
  FinishAbort();
  const v1::SaveOrder told = AnswerTo(1, 9);
  EXPECT_EQ(told.phase(), v1::Phase::ABORTED);
  EXPECT_EQ(told.attempt(), 1u);
  EXPECT_EQ(RanksOf(told), "1");
  EXPECT_EQ(told.error().message(), AnswerTo(0).error().message()) << "all hear the same";
  Report(0, {AskedByNumber(70)});
  EXPECT_EQ(AnswerTo(0, 9).phase(), v1::Phase::UNKNOWN) << "another rank's number";
  Report(1, {AskedByNumber(70)});
  Report(1, {State(1, v1::Phase::PLANNING, 3)});
  Pass(absl::Seconds(2));
  EXPECT_EQ(AnswerTo(1, 3).phase(), v1::Phase::WAITING) << "it is told once";
}

TEST_F(RestartedAgentTest, AskedSave_ByItsNumberOfACoordinatorThatRestarted_IsUnknown) {
  StoredAttempts recovered;
  recovered = {Outcome(1, true)};
  Start(recovered);
  Report(1, {AskedByNumber(70)});
  EXPECT_EQ(AnswerTo(1, 9).phase(), v1::Phase::UNKNOWN) << "nobody can say whether that attempt was its";
}

TEST_F(RestartedAgentTest, AskedSave_OthersSave_NeitherOpensNorJoinsNorDelays) {
  Report(1, {Asked(1)});
  EXPECT_FALSE(job().Get({kStep, ""}, 0, At())->ok()) << "it opens no save";
  Report(0, {State(0, v1::Phase::PLANNING)});
  Report(1, {Asked(1)});
  EXPECT_FALSE(Take<PlanSave>().has_value()) << "rank 1 has not begun";
  Pass(absl::Seconds(20));
  EXPECT_EQ(ErrorOf(AnswerTo(0)), Reason::kRankLate) << "nor is it waited for any longer";
  EXPECT_EQ(RanksOf(AnswerTo(0)), "1");
}

TEST_F(RestartedAgentTest, AskedSave_CoordinatorRestarted_IsAnsweredByStorage) {
  StoredAttempts recovered;
  recovered = {Outcome(1, false, MakeError(Reason::kRankLost, "rank 1 was lost")), Outcome(3, true)};
  Start(recovered);
  Report(1, {Asked(1, 11), Asked(2, 12), Asked(3, 13), Asked(4, 14), Asked(0, 15)});
  EXPECT_EQ(AnswerTo(1, 11).phase(), v1::Phase::ABORTED);
  EXPECT_EQ(ErrorOf(AnswerTo(1, 11)), Reason::kRankLost);
  EXPECT_EQ(AnswerTo(1, 12).phase(), v1::Phase::ABORTED) << "a higher attempt began, so this one had ended";
  EXPECT_EQ(ErrorOf(AnswerTo(1, 12)), Reason::kSuperseded);
  EXPECT_EQ(AnswerTo(1, 13).phase(), v1::Phase::COMMITTED);
  EXPECT_EQ(AnswerTo(1, 14).phase(), v1::Phase::ABORTED) << "another attempt's commit is not its";
  EXPECT_EQ(ErrorOf(AnswerTo(1, 14)), Reason::kNotCommitted);
  EXPECT_EQ(AnswerTo(1, 15).phase(), v1::Phase::ABORTED);
}

TEST_F(RestartedAgentTest, AskedSave_UnfinishedAttempt_WaitsForItsAbortRecord) {
  StoredAttempts recovered;
  recovered = {{.step = kStep, .attempt = 1, .unfinished = true, .directory = true}};
  Start(recovered);
  Report(1, {Asked(1)});
  EXPECT_EQ(AnswerTo(1, 9).phase(), v1::Phase::WAITING) << "ranks may come back with it";
  // Asking does not keep it alive.
  for (int i = 0; i < 25 && !Take<PutOutcome>().has_value(); ++i) {
    Pass(absl::Minutes(1));
    for (int rank = 0; rank < 2; ++rank) Register(rank);
    Report(1, {Asked(1)});
    if (const auto put = Take<PutOutcome>(); put.has_value()) {
      core_->TakeWoken();
      job().OnOutcome(kStep, put->ticket, PutAnswer{Outcome(1, false, put->error)}, At());
      EXPECT_TRUE(IsWoken(1));
      break;
    }
  }
  EXPECT_EQ(AnswerTo(1, 9).phase(), v1::Phase::ABORTED);
  EXPECT_EQ(ErrorOf(AnswerTo(1, 9)), Reason::kCoordinatorRestarted);
}

TEST_F(RestartedAgentTest, AskedSave_WhoseOutcomeCouldNotBeRead_IsReadAgain) {
  StoredAttempts recovered;
  recovered = {Outcome(1, false, MakeError(Reason::kStorageError, "I/O error"))};
  recovered[0].damaged = true;
  Start(recovered);
  Report(1, {Asked(1)});
  EXPECT_EQ(AnswerTo(1, 9).phase(), v1::Phase::WAITING);
  EXPECT_TRUE(HasReason(StatusFromProto(AnswerTo(1, 9).stalled()), Reason::kStorageError));
  auto read = Take<ReadStep>();
  ASSERT_TRUE(read.has_value());
  job().OnStepRead(kStep, read->ticket, recovered, At());
  EXPECT_FALSE(Take<ReadStep>().has_value()) << "not at once";
  Pass(absl::Seconds(2));
  Report(1, {Asked(1)});
  read = Take<ReadStep>();
  ASSERT_TRUE(read.has_value());
  recovered = {Outcome(1, true)};
  job().OnStepRead(kStep, read->ticket, recovered, At());
  EXPECT_EQ(AnswerTo(1, 9).phase(), v1::Phase::COMMITTED);
}

TEST_F(RestartedAgentTest, OpenCall_AttemptWasAborted_HearsItsOutcomeFromTheNextAgent) {
  Number(kStep);
  Restart(1);
  Report(1, {State(1, v1::Phase::PLANNING)});  // the client repeats its call
  FinishAbort();
  Report(0);  // rank 0 has been told, and trains on
  Pass(absl::Seconds(2));
  EXPECT_EQ(AnswerTo(1).phase(), v1::Phase::ABORTED) << "it does not begin an attempt that nobody else joins";
  EXPECT_EQ(ErrorOf(AnswerTo(1)), Reason::kRankLost);
  EXPECT_EQ(AnswerTo(1).attempt(), 1u);
  // The next one begins anew.
  Report(1, {State(1, v1::Phase::PLANNING, 2)});
  Pass(absl::Seconds(2));
  EXPECT_EQ(AnswerTo(1, 2).phase(), v1::Phase::WAITING);
  EXPECT_TRUE(job().Get({kStep, ""}, 0, At())->ok());
}

TEST_F(RestartedAgentTest, OpenCall_OthersTryAgain_IsTakenByTheNextAttempt) {
  Number(kStep);
  Restart(1);
  FinishAbort();
  Report(1, {State(1, v1::Phase::PLANNING)});  // begins again as well, and is the first to do so
  EXPECT_EQ(AnswerTo(1).phase(), v1::Phase::WAITING);
  Pass(absl::Milliseconds(500));
  Report(0, {State(0, v1::Phase::PLANNING, 2)});
  Report(1, {State(1, v1::Phase::PLANNING)});
  EXPECT_TRUE(Take<ReserveAttempt>().has_value()) << "both are in it";
  Pass(absl::Seconds(2));
  EXPECT_NE(AnswerTo(1).phase(), v1::Phase::ABORTED) << "and nobody is told of the one before";
}

TEST_F(RestartedAgentTest, Trainer_AskedForTheOutcome_IsNotToldItAgain) {
  Number(kStep);
  Restart(1);
  FinishAbort();
  Report(1, {Asked(1)});
  EXPECT_EQ(AnswerTo(1, 9).phase(), v1::Phase::ABORTED);
  Report(1, {State(1, v1::Phase::PLANNING, 3)});
  Pass(absl::Seconds(2));
  EXPECT_EQ(AnswerTo(1, 3).phase(), v1::Phase::WAITING);
}

TEST_F(RestartedAgentTest, OpenCall_ComesLate_IsAnsweredWhateverItsNumber) {
  // Rank 1's agent has counted calls of other steps; rank 0 gave up waiting for this one.
  Report(0, {State(0, v1::Phase::PLANNING)});
  Report(1);
  Pass(absl::Seconds(20));
  EXPECT_EQ(ErrorOf(AnswerTo(0)), Reason::kRankLate);
  Report(0);
  Report(1, {State(1, v1::Phase::PLANNING, 17)});
  Pass(absl::Seconds(2));
  EXPECT_EQ(AnswerTo(1, 17).phase(), v1::Phase::ABORTED);
  EXPECT_EQ(ErrorOf(AnswerTo(1, 17)), Reason::kRankLate);
}

TEST_F(RestartedAgentTest, CallThatComesBackAfterItsAttemptEnded_HearsOfIt) {
  // The coordinator restarted. Rank 1's agent has not come back to it yet when rank 0's restarts as well.
  for (const bool with_trainer : {true, false}) {
    Start(StoredAttempts());
    v1::SaveState staged = State(0, v1::Phase::STAGED);
    staged.clear_attempt();
    staged.clear_attempt_nonce();
    Report(0, {staged});
    Restart(0);
    Report(0);                                    // its trainer was told by its agent
    if (!with_trainer) JobFixture::Report(1, 0);  // it has just started
    staged.set_layout_digest(Layout(1));
    Report(1, {staged});
    EXPECT_EQ(AnswerTo(1).phase(), v1::Phase::WAITING) << "all may try again together";
    Pass(absl::Seconds(2));
    EXPECT_EQ(AnswerTo(1).phase(), with_trainer ? v1::Phase::ABORTED : v1::Phase::WAITING);
    if (with_trainer) {
      EXPECT_EQ(ErrorOf(AnswerTo(1)), Reason::kRankLost);
    }
  }
}

}  // namespace
}  // namespace cairn
