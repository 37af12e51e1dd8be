// Single orders of events, where the simulation would need luck: who is told what, and what ends if nobody answers.
#include "coordinator/job/job.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status_proto.h"
#include "coordinator/testing/job_fixture.h"

namespace cairn {
namespace {

class JobTest : public TwoRankFixture {
 protected:
  // Asks for a save, as `cairn save` does. `timeout` is in seconds.
  void Request(const std::string& id, std::optional<int64_t> timeout) {
    v1::CreateCheckpointRequest request;
    request.set_job(kJob);
    request.set_request_id(id);
    if (timeout.has_value()) request.mutable_timeout()->set_seconds(*timeout);
    ASSERT_TRUE(job().Create(request, /*patient=*/false, At())->ok());
  }
};

// While the trainers declare other layouts one after the other, every set between is another one: n plans would be n²
// hashes and n plans of which all but the last are for nothing.
TEST_F(JobTest, CurrentPlan_LayoutsChangeOneByOne_IsAskedForOnceAtATime) {
  const auto declare = [&](int rank, const std::string& layout) {
    core_->layouts.Add(layout, 1);
    v1::AgentState state = StateWith(Trainer(rank));
    state.mutable_trainer()->set_layout_digest(layout);
    Synchronize(rank, state);
  };
  declare(0, "a0");
  EXPECT_FALSE(Take<PlanSave>().has_value()) << "rank 1 has declared none";
  declare(1, "a1");
  const auto first = Take<PlanSave>();
  ASSERT_TRUE(first.has_value()) << "all have one: nothing is to be waited for";
  for (int i = 0; i < 3; ++i) {
    declare(0, absl::StrCat("b0-", i));
    declare(1, absl::StrCat("b1-", i));
    Pass(absl::Seconds(1));
  }
  EXPECT_FALSE(Take<PlanSave>().has_value()) << "the first one is under way";
  job().OnSavePlanned(first->key, PlannedSave{"plan a", 1}, At());
  const auto second = Take<PlanSave>();
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(second->layout, (std::vector<std::string>{"b0-2", "b1-2"}));
  job().OnSavePlanned(second->key, PlannedSave{"plan b", 1}, At());
  EXPECT_FALSE(Take<PlanSave>().has_value());
  EXPECT_EQ(job().OrdersFor(1, At()).current_plan_digest(), "plan b");
}

TEST_F(JobTest, Create_NoTrainerIsAttached_IsRefusedAtOnce) {
  v1::CreateCheckpointRequest request;
  request.set_job(kJob);
  request.set_request_id("r");
  for (int rank = 0; rank < 2; ++rank) Report(rank, 0);
  const auto refused = job().Create(request, /*patient=*/true, At());
  ASSERT_TRUE(refused.has_value());
  EXPECT_TRUE(HasReason(refused->status(), Reason::kStepRefused)) << refused->status();
  EXPECT_EQ(refused->status().message(), absl::StrCat(kJob,
                                                      ": no training process is attached to any of its 2 agents, "
                                                      "so there is nothing to save"));
  Report(1, Trainer(1));
  const auto taken = job().Create(request, /*patient=*/true, At());
  ASSERT_TRUE(taken.has_value());
  EXPECT_TRUE(taken->ok()) << "the other rank's trainer may be on its way: " << taken->status();
}

// The trainer has attached, and asks before its agent's report has named it.
TEST_F(JobTest, Create_ForATrainerThatNoReportHasNamed_IsTaken) {
  v1::CreateCheckpointRequest request;
  request.set_job(kJob);
  request.set_request_id("r");
  request.set_for_trainer(true);
  for (int rank = 0; rank < 2; ++rank) Report(rank, 0);
  const auto taken = job().Create(request, /*patient=*/true, At());
  ASSERT_TRUE(taken.has_value());
  ASSERT_TRUE(taken->ok()) << taken->status();
  EXPECT_EQ((*taken)->state(), v1::Phase::PREPARING);
  for (int rank = 0; rank < 2; ++rank) Report(rank, Trainer(rank));
  EXPECT_EQ(job().Get({std::nullopt, "r"}, 0, At())->value().state(), v1::Phase::PREPARING)
      << "a trainer that comes now is none that was lost";
}

TEST_F(JobTest, Missed_TimeoutPassesBetweenTwoTicks_IsNothing) {
  v1::AgentState state = StateWith(Trainer(0));
  state.mutable_trainer()->set_layout_digest(Layout(0));
  state.mutable_trainer()->set_prepare_calls(1);
  Synchronize(0, state);
  Pass(absl::Milliseconds(250));  // one tick, from which on the other ranks' layouts are waited for
  Pass(Options().phase_timeout - absl::Milliseconds(100));
  now_ += absl::Milliseconds(200);
  Request("asked for", std::nullopt);  // takes the step that time has made possible: rank 1 holds up the plan
  EXPECT_TRUE(job().OrdersFor(0, At()).has_current_plan_error());
  EXPECT_EQ(core_->Missed(), "");
  EXPECT_TRUE(job().OrdersFor(0, At()).has_current_plan_error());
}

TEST_F(JobTest, Save_SavesBeyondWhatIsKept_WaitForOthersToEnd) {
  std::vector<v1::SaveState> saves;
  for (int step = 0; step < 200; ++step) saves.push_back(Begun(0, step));
  Report(0, Trainer(0), saves);
  EXPECT_TRUE(job().Get({31, ""}, 0, At())->ok());
  EXPECT_FALSE(job().Get({32, ""}, 0, At())->ok()) << "each costs memory for every rank of the job";
  EXPECT_EQ(OrderOf(0, 150).phase(), v1::Phase::WAITING);
  for (int step = 0; step < 150; ++step) job().Cancel({step, ""}, At());
  Report(0, Trainer(0), {saves.begin() + 150, saves.end()});
  EXPECT_TRUE(job().Get({150, ""}, 0, At())->ok());
}

TEST_F(JobTest, RequestThatFailedAfterTheLastCommit_IsShown_UntilTheNextSaveBegins) {
  const PutOutcome put = BringToCommit(4);
  job().OnOutcome(put.step, put.ticket, PutAnswer{Standing(put, /*committed=*/true), false}, At());
  ASSERT_EQ(job().View(At()).checkpoint().state(), v1::Phase::COMMITTED);
  for (const char* id : {"first", "second"}) {
    Request(id, 2);
    EXPECT_EQ(job().View(At()).checkpoint().state(), v1::Phase::PREPARING);
    Pass(absl::Seconds(3));  // no rank reports a step to agree on
    const v1::Checkpoint shown = job().View(At()).checkpoint();
    EXPECT_EQ(shown.state(), v1::Phase::ABORTED);
    EXPECT_EQ(shown.request_id(), id);
    EXPECT_TRUE(ReasonOf(StatusFromProto(shown.error())).has_value()) << shown.ShortDebugString();
    EXPECT_EQ((*job().Get(CheckpointKey(), 0, At()))->step(), 4) << "the latest that is committed";
  }
  Plan(5);
  EXPECT_EQ(job().View(At()).checkpoint().state(), v1::Phase::COLLECTING);
}

TEST_F(JobTest, Register_MoreRanksThanConnections_SaysHowManyAreNeeded) {
  DecisionOptions options = Options();
  for (const auto& [open_files, warned] : {std::pair(161, true), std::pair(164, false), std::pair(0, false)}) {
    options.open_files = static_cast<uint64_t>(open_files);
    Start(options);
    std::string text;
    for (const LogEvent& event : core_->TakeLog()) absl::StrAppend(&text, event.Text(), "\n");
    EXPECT_EQ(text.find("open_files_too_few job=demo world_size=2 open_files=161 wanted=164") != std::string::npos,
              warned)
        << text;
    EXPECT_EQ(text.find("ulimit -n 164") != std::string::npos, warned) << text;
  }
}

TEST_F(JobTest, Request_RankIsLostAfterTheLastCommit_IsShownAsFailed) {
  const PutOutcome put = BringToCommit(4);
  job().OnOutcome(put.step, put.ticket, PutAnswer{Standing(put, /*committed=*/true), false}, At());
  Request("asked for", std::nullopt);
  ASSERT_TRUE(job().Unregister(Identity(1), At()).ok());
  const v1::Checkpoint shown = job().View(At()).checkpoint();
  EXPECT_EQ(shown.request_id(), "asked for") << "the older commit does not hide it";
  EXPECT_TRUE(HasReason(StatusFromProto(shown.error()), Reason::kRankLost)) << shown.ShortDebugString();
}

TEST_F(JobTest, RequestBehindSavesWithoutEnd_EndsWhenAnAgentIsMissing) {
  DecisionOptions options = Options();
  options.lease_ttl = absl::Seconds(2);
  Start(options);
  for (int second = 0; second < 60; ++second) {  // rank 1 is not heard of again; rank 0 saves every ten steps
    if (second == 5) Request("asked for", std::nullopt);
    Report(0, Trainer(0), {Begun(0, 10 * (second / 10))});
    Pass(absl::Seconds(1));
  }
  const v1::Checkpoint shown = **job().Get({std::nullopt, "asked for"}, 0, At());
  EXPECT_EQ(shown.state(), v1::Phase::ABORTED);
  const absl::Status error = StatusFromProto(shown.error());
  EXPECT_TRUE(HasReason(error, Reason::kWorldIncomplete)) << error;
  EXPECT_EQ(MetadataOf(error)["ranks"], "1") << error;
}

TEST_F(JobTest, RequestWhoseTimePassedBehindAnotherSave_BlamesNoRank) {
  Report(0, Trainer(0), {Begun(0, 1)});
  Request("asked for", 5);
  Pass(absl::Seconds(4));
  job().Cancel({1, ""}, At());
  Report(0, Trainer(0));
  Pass(absl::Seconds(2));
  const absl::Status error = StatusFromProto((*job().Get({std::nullopt, "asked for"}, 0, At()))->error());
  EXPECT_TRUE(HasReason(error, Reason::kSaveInProgress)) << error;
  EXPECT_EQ(MetadataOf(error).count("ranks"), 0u) << error;
}

TEST_F(JobTest, Save_StepThatWasCommitted_IsReadAgainBeforeASaveOfItIsRefused) {
  const PutOutcome put = BringToCommit(1);
  job().OnOutcome(1, put.ticket, PutAnswer{Standing(put, true)}, At());
  for (int rank = 0; rank < 2; ++rank) Report(rank, Trainer(rank), {Begun(rank, 1, 2)});
  auto read = Take<ReadStep>();
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(OrderOf(0, 1).phase(), v1::Phase::WAITING);
  StoredAttempts recovered;
  recovered.push_back(Standing(put, true));
  job().OnStepRead(1, read->ticket, recovered, At());
  EXPECT_EQ(ErrorOf(OrderOf(0, 1)), Reason::kStepCommitted);
  // Rank 1 asked after the read had begun: it is read again.
  read = Take<ReadStep>();
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(OrderOf(1, 1).phase(), v1::Phase::WAITING);
  job().OnStepRead(1, read->ticket, recovered, At());
  EXPECT_EQ(ErrorOf(OrderOf(1, 1)), Reason::kStepCommitted);
  // People remove the step.
  for (int rank = 0; rank < 2; ++rank) Report(rank, Trainer(rank), {Begun(rank, 1, 3)});
  read = Take<ReadStep>();
  ASSERT_TRUE(read.has_value());
  job().OnStepRead(1, read->ticket, StoredAttempts(), At());
  EXPECT_TRUE(Take<ReserveAttempt>().has_value()) << "a save of it has begun";
}

TEST_F(JobTest, Save_OverwriteOfACommittedStep_TakesItsPlaceAndThenDeletesIt) {
  const PutOutcome first = BringToCommit(4);
  job().OnOutcome(first.step, first.ticket, PutAnswer{Standing(first, /*committed=*/true), false}, At());
  Answer<ChangeSteps>([](Job& job, const ChangeSteps& prune, const Moment& at) {
    job.OnStepsChanged(prune.ticket, ChangedSteps{}, at);
  });
  for (int rank = 0; rank < 2; ++rank) Report(rank, Trainer(rank));
  const auto overwriting = [](v1::SaveState state) {
    state.set_overwrite(true);
    return state;
  };
  for (int rank = 0; rank < 2; ++rank) Report(rank, Trainer(rank), {overwriting(Begun(rank, 4, 2))});
  const auto reserve = Take<ReserveAttempt>();
  ASSERT_TRUE(reserve.has_value());
  EXPECT_TRUE(reserve->overwrite);
  job().OnReserved(4, reserve->ticket, Reserved{2, kNonce}, At());
  EXPECT_EQ(job().Get({4, ""}, 0, At())->value().attempt(), 2u) << "what is under way";
  for (int rank = 0; rank < 2; ++rank) {
    v1::SaveState written = overwriting(InAttempt(rank, 4, v1::Phase::WRITTEN, 2));
    written.set_attempt(2);
    Report(rank, Trainer(rank), {written});
  }
  Answer<MakeManifest>([](Job& job, const MakeManifest& what, const Moment& at) {
    job.OnManifest(what.step, what.ticket, MadeManifest{std::make_shared<std::string>("m"), 1}, at);
  });
  const auto put = Take<PutOutcome>();
  ASSERT_TRUE(put.has_value());
  EXPECT_FALSE(Take<ChangeSteps>().has_value()) << "nothing is deleted before the new one stands";
  job().OnOutcome(4, put->ticket, PutAnswer{Standing(*put, /*committed=*/true), false}, At());
  const auto change = Take<ChangeSteps>();
  ASSERT_TRUE(change.has_value());
  ASSERT_NE(std::get_if<DeleteReplaced>(&change->change), nullptr);
  EXPECT_EQ(std::get<DeleteReplaced>(change->change).step, 4);
}

TEST_F(JobTest, Recover_AnAttemptTookAnothersPlace_DeletesTheReplacedOne) {
  StartJob(Options());
  for (int rank = 0; rank < 2; ++rank) Register(rank);
  StoredAttempts recovered;
  for (uint32_t attempt : {1, 2}) {
    StoredAttempt outcome;
    outcome.step = 4;
    outcome.attempt = attempt;
    outcome.committed = true;
    recovered.push_back(outcome);
  }
  Recover(recovered);
  const auto change = Take<ChangeSteps>();
  ASSERT_TRUE(change.has_value());
  ASSERT_NE(std::get_if<DeleteReplaced>(&change->change), nullptr);
  EXPECT_EQ(std::get<DeleteReplaced>(change->change).step, 4);
}

TEST_F(JobTest, Change_PruneTakesLong_TellsWhatItHasDoneAndSaysTheRestWhenAskedAgain) {
  const PutOutcome put = BringToCommit(4);
  job().OnOutcome(put.step, put.ticket, PutAnswer{Standing(put, /*committed=*/true), false}, At());
  Answer<ChangeSteps>([](Job& job, const ChangeSteps& policy, const Moment& at) {
    job.OnStepsChanged(policy.ticket, ChangedSteps{}, at);
  });
  const ChangeSteps prune{PruneSteps{PrunePolicy{.keep_last = 1}}};
  uint64_t first = 0, second = 0;
  EXPECT_FALSE(job().Change(prune, first, /*patient=*/false, /*partly=*/true, At()).has_value());
  Answer<ChangeSteps>([](Job& job, const ChangeSteps& what, const Moment& at) {
    ChangedSteps part;
    part.choices = {{1, true, ""}, {2, true, ""}, {4, false, "the newest"}};
    part.stopped_after = 1;
    job.OnStepsChanged(what.ticket, part, at);
  });
  EXPECT_FALSE(job().Change(prune, first, /*patient=*/true, /*partly=*/false, At()).has_value());
  const auto part = job().Change(prune, first, /*patient=*/true, /*partly=*/true, At());
  ASSERT_TRUE(part.has_value() && part->ok());
  EXPECT_EQ((*part)->steps.stopped_after, 1);
  EXPECT_EQ((*part)->steps.choices.size(), 3u);
  EXPECT_FALSE(job().Change(prune, second, /*patient=*/true, /*partly=*/false, At()).has_value());
  EXPECT_EQ(second, first) << "the same prune";
  Answer<ChangeSteps>([](Job& job, const ChangeSteps& what, const Moment& at) {
    EXPECT_EQ(std::get<PruneSteps>(what.change).after, 1);
    EXPECT_EQ(what.latest, 4);
    ChangedSteps rest;
    rest.choices = {{2, true, ""}, {4, false, "the newest"}};
    job.OnStepsChanged(what.ticket, rest, at);
  });
  const auto whole = job().Change(prune, second, /*patient=*/true, /*partly=*/false, At());
  ASSERT_TRUE(whole.has_value() && whole->ok());
  EXPECT_EQ((*whole)->steps.choices.size(), 3u);
  EXPECT_FALSE((*whole)->steps.stopped_after.has_value());
}

TEST_F(JobTest, Save_OverwriteThatIsAborted_LeavesTheCheckpointShown) {
  const PutOutcome first = BringToCommit(4);
  job().OnOutcome(first.step, first.ticket, PutAnswer{Standing(first, /*committed=*/true), false}, At());
  for (int rank = 0; rank < 2; ++rank) Report(rank, Trainer(rank));
  v1::SaveState again = Begun(0, 4, 2);
  again.set_overwrite(true);
  Report(0, Trainer(0), {again});
  job().Cancel({4, ""}, At());
  EXPECT_EQ(OrderOf(0, 4).phase(), v1::Phase::ABORTED);
  const auto shown = job().Get({4, ""}, 0, At());
  EXPECT_EQ((*shown)->state(), v1::Phase::COMMITTED);
  EXPECT_EQ((*shown)->attempt(), 1u);
}

TEST_F(JobTest, Save_RanksOfWhichOneDoesNotOverwrite_TakeNoCommittedStep) {
  const PutOutcome first = BringToCommit(4);
  job().OnOutcome(first.step, first.ticket, PutAnswer{Standing(first, /*committed=*/true), false}, At());
  v1::SaveState again = Begun(0, 4, 2);
  again.set_overwrite(true);
  Report(0, Trainer(0), {again});
  Report(1, Trainer(1), {Begun(1, 4, 2)});
  const auto reserve = Take<ReserveAttempt>();
  ASSERT_TRUE(reserve.has_value());
  EXPECT_FALSE(reserve->overwrite) << "storage refuses it";
}

TEST_F(JobTest, Save_TrainingThatWentBack_TakesTheStepThatItLeftBehind) {
  StoredAttempt stood;
  stood.committed = true;
  StoredAttempts recovered;
  for (int64_t step : {40, 60}) {
    stood.step = step;
    stood.attempt = 1;
    recovered.push_back(stood);
  }
  StartJob(Options());
  for (int rank = 0; rank < 2; ++rank) Register(rank);
  Recover(recovered);
  const auto resumed = [](v1::SaveState state, int64_t step) {
    state.mutable_resumed_from()->set_line(7);
    state.mutable_resumed_from()->set_step(step);
    return state;
  };
  Report(0, Trainer(0), {resumed(Begun(0, 60), 60)});
  EXPECT_TRUE(Take<ReadStep>().has_value()) << "who has loaded step 60 itself is refused";
  for (int rank = 0; rank < 2; ++rank) Report(rank, Trainer(rank), {resumed(Begun(rank, 60, 2), 40)});
  const auto plan = Take<PlanSave>();
  ASSERT_TRUE(plan.has_value());
  job().OnSavePlanned(plan->key, PlannedSave{"plan", 1}, At());
  const auto reserve = Take<ReserveAttempt>();
  ASSERT_TRUE(reserve.has_value());
  EXPECT_FALSE(reserve->overwrite);
  EXPECT_EQ(reserve->left_behind, std::set<int64_t>{60});
}

TEST_F(JobTest, Save_CallThatWasRefused_JoinsNoLaterSaveOfTheStep) {
  const PutOutcome put = BringToCommit(1);
  job().OnOutcome(1, put.ticket, PutAnswer{Standing(put, true)}, At());
  StoredAttempts recovered;
  recovered.push_back(Standing(put, true));
  for (int rank = 0; rank < 2; ++rank) {
    Report(rank, Trainer(rank), {Begun(rank, 1, 2)});
    const auto read = Take<ReadStep>();
    ASSERT_TRUE(read.has_value());
    job().OnStepRead(1, read->ticket, recovered, At());
    EXPECT_EQ(ErrorOf(OrderOf(rank, 1)), Reason::kStepCommitted);
  }
  // People remove the step. Rank 0 calls again before rank 1's agent says that its trainer has heard of the refusal.
  Report(0, 900, {Begun(0, 1, 3)});
  const auto read = Take<ReadStep>();
  ASSERT_TRUE(read.has_value());
  job().OnStepRead(1, read->ticket, StoredAttempts(), At());
  EXPECT_EQ(OrderOf(0, 1).phase(), v1::Phase::WAITING);
  EXPECT_EQ(ErrorOf(OrderOf(1, 1)), Reason::kStepCommitted);
  Report(1, 901);
  Report(1, 901, {Begun(1, 1, 3)});
  EXPECT_TRUE(Take<ReserveAttempt>().has_value()) << "both are in the save";
  EXPECT_EQ(ErrorOf(OrderOf(1, 1)), std::nullopt);
}

TEST_F(JobTest, Layouts_TenThousand_LeaveNothingBehind) {
  for (int i = 0; i < 10'000; ++i) {
    const std::string digest = absl::StrCat("layout ", i);
    v1::AgentState state = StateWith(Trainer(0));
    v1::LoadState& load = *state.add_loads();
    load.set_number(static_cast<uint64_t>(i + 1));
    load.set_layout_digest(digest);
    load.set_trainer_incarnation(Trainer(0));
    load.set_phase(v1::Phase::FAILED);
    Synchronize(0, state);
    core_->layouts.Add(digest, 100);
    core_->layouts.TakeDropped();
    core_->TakeActions();
    core_->TakeLog();
    now_ += absl::Seconds(1);
    core_->Tick({now_, now_});
    ASSERT_LE(core_->layouts.size(), LayoutTable::kUnheldKept + 4);
    ASSERT_LE(job().View(At()).loads_size(), 32);
  }
}

// Somebody asks for a name. Nothing is done about it, and soon nothing has to be left of it.
TEST_F(JobTest, Forgettable_NameThatDoesNotExist_SoonAfterStorageHasSaidSo) {
  TestJob ghost("ghost", Options(), now_);
  ghost.job.EnsureRecovered(At());
  EXPECT_EQ(ghost.TakeActions().size(), 1u) << "storage is asked";
  now_ += absl::Seconds(1);
  EXPECT_FALSE(ghost.job.forgettable(now_)) << "storage has not answered";
  ghost.job.OnRecovered(StoredAttempts(), At());
  EXPECT_TRUE(ghost.TakeActions().empty()) << "there is nothing to prune";
  now_ += absl::Milliseconds(100);
  EXPECT_TRUE(ghost.job.forgettable(now_));
}

// An agent that was never registered speaks of it.
TEST_F(JobTest, Forgettable_NobodyHasAskedForIt_AtOnce) {
  TestJob ghost("ghost", Options(), now_);
  EXPECT_TRUE(HasReason(ghost.job.Touch(Identity(0), /*uploaded=*/false, At()), Reason::kNotRegistered));
  now_ += absl::Milliseconds(1);
  EXPECT_TRUE(ghost.job.forgettable(now_));
}

TEST_F(JobTest, Forgettable_StorageFails_StaysWhileSomebodyMayBeAsking) {
  TestJob ghost("ghost", Options(), now_);
  ghost.job.EnsureRecovered(At());
  ghost.job.OnRecovered(MakeError(Reason::kStorageError, "the storage failed"), At());
  now_ += Options().lease_ttl;
  EXPECT_FALSE(ghost.job.forgettable(now_));
  now_ += absl::Milliseconds(1);
  EXPECT_TRUE(ghost.job.forgettable(now_));
}

TEST_F(JobTest, Forgettable_ItHasAgents_Never) {
  now_ += absl::Hours(1);
  EXPECT_FALSE(job().forgettable(now_));
}

// The job's trainers take one set of layouts after the other.
TEST_F(JobTest, ReleaseOldestPlan_OldSetsOfLayouts_AreLetGoOldestFirst) {
  std::vector<std::string> dropped;
  const auto declare = [&](const std::string& set) {
    for (int rank = 0; rank < 2; ++rank) {
      const std::string layout = absl::StrCat(set, rank);
      core_->layouts.Add(layout, LayoutTable::kUnheldBytesKept);
      v1::AgentState state = StateWith(Trainer(rank));
      state.mutable_trainer()->set_layout_digest(layout);
      Synchronize(rank, state);
    }
    Pass(absl::Seconds(1));
    const auto plan = Take<PlanSave>();
    ASSERT_TRUE(plan.has_value()) << set;
    job().OnSavePlanned(plan->key, PlannedSave{"plan " + set, 1}, At());
  };
  const auto release = [&] {
    EXPECT_TRUE(job().ReleaseOldestPlan());
    core_->layouts.DropUnheld();
    std::vector<std::string> gone = core_->layouts.TakeDropped();
    std::sort(gone.begin(), gone.end());
    return gone;
  };
  for (const char* set : {"a", "b", "c"}) declare(set);
  core_->layouts.DropUnheld();
  core_->layouts.TakeDropped();
  EXPECT_EQ(release(), (std::vector<std::string>{"a0", "a1"}));
  EXPECT_EQ(release(), (std::vector<std::string>{"b0", "b1"}));
  EXPECT_EQ(release(), std::vector<std::string>()) << "trainers have these";
  EXPECT_FALSE(job().ReleaseOldestPlan());
  declare("d");
  EXPECT_EQ(job().OrdersFor(0, At()).current_plan_digest(), "plan d");
}

}  // namespace
}  // namespace cairn
