// Single orders of events, where the simulation would need luck: who is told what, and what ends if nobody answers.
#include "coordinator/job/job.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status_proto.h"
#include "coordinator/job/decisions.h"

namespace cairn {
namespace {

constexpr char kJob[] = "demo";
constexpr uint64_t kNonce = 7;

class JobTest : public testing::Test {
 protected:
  JobTest() { Start(Options()); }

  void Start(const DecisionOptions& options) {
    decisions_ = std::make_unique<Decisions>(options);
    for (int rank = 0; rank < 2; ++rank) {
      decisions_->layouts().Add(Layout(rank), 1);
      Register(rank);
      Report(rank, Trainer(rank));
    }
    Answer<RecoverJob>([](Job& job, const RecoverJob&, const Moment& moment) { job.OnRecovered(Recovered(), moment); });
  }

  static DecisionOptions Options() {
    DecisionOptions options;
    options.phase_timeout = absl::Seconds(20);
    options.lease_ttl = absl::Minutes(10);  // agents are not what ends here
    options.storage_timeout = absl::Seconds(5);
    return options;
  }
  static std::string Layout(int rank) { return absl::StrCat("layout", rank); }
  static uint64_t Trainer(int rank) { return static_cast<uint64_t>(100 + rank); }
  Moment At() { return decisions_->At(now_, now_); }
  Job& job() { return **decisions_->JobFor(kJob, At()); }

  v1::AgentIdentity Identity(int rank) {
    v1::AgentIdentity identity;
    identity.set_job(kJob);
    identity.set_rank(static_cast<uint32_t>(rank));
    identity.set_incarnation(static_cast<uint64_t>(1 + rank));
    return identity;
  }
  void Register(int rank) {
    v1::RegisterAgentRequest request;
    *request.mutable_agent() = Identity(rank);
    request.set_world_size(2);
    ASSERT_TRUE(job().Register(request, At()).ok());
  }
  // Asks for a save, as `cairn save` does. `timeout`: in seconds.
  void Request(const std::string& id, std::optional<int64_t> timeout) {
    v1::CreateCheckpointRequest request;
    request.set_job(kJob);
    request.set_request_id(id);
    if (timeout.has_value()) request.mutable_timeout()->set_seconds(*timeout);
    ASSERT_TRUE(job().Create(request, /*patient=*/false, At())->ok());
  }
  // The rank's trainer (0: none) and its saves.
  void Report(int rank, uint64_t trainer, const std::vector<v1::SaveState>& saves = {}) {
    v1::SynchronizeAgentRequest request;
    *request.mutable_agent() = Identity(rank);
    v1::TrainerState& state = *request.mutable_state()->mutable_trainer();
    state.set_attached(trainer != 0);
    state.set_incarnation(trainer);
    for (const v1::SaveState& save : saves) {
      v1::SaveState& added = *request.mutable_state()->add_saves() = save;
      if (added.trainer_incarnation() == 0) added.set_trainer_incarnation(trainer);
    }
    ASSERT_TRUE(job().Synchronize(request, At()).ok());
  }
  v1::SaveState Begun(int rank, int64_t step, uint64_t call = 1) {
    v1::SaveState state;
    state.set_step(step);
    state.set_call(call);
    state.set_phase(v1::SaveState::BEGUN);
    state.set_layout_digest(Layout(rank));
    return state;
  }
  v1::SaveState Written(int rank, int64_t step) {
    v1::SaveState state = Begun(rank, step);
    state.set_phase(v1::SaveState::WRITTEN);
    state.set_plan_digest("plan");
    state.set_attempt(1);
    state.set_attempt_nonce(kNonce);
    return state;
  }
  v1::SaveOrder OrderOf(int rank, int64_t step) {
    const v1::SynchronizeAgentResponse orders = job().OrdersFor(rank, At());
    for (const v1::SaveOrder& order : orders.saves()) {
      if (order.step() == step) return order;
    }
    return {};
  }
  static std::optional<Reason> ErrorOf(const v1::SaveOrder& order) { return ReasonOf(StatusFromProto(order.error())); }

  // The action of this kind that was given; nothing if there was none.
  template <typename What>
  std::optional<What> Take() {
    for (CoreAction& action : decisions_->TakeActions()) actions_.push_back(std::move(action));
    for (auto action = actions_.begin(); action != actions_.end(); ++action) {
      if (!std::holds_alternative<What>(action->what)) continue;
      What found = std::get<What>(std::move(action->what));
      actions_.erase(action);
      return found;
    }
    return std::nullopt;
  }
  template <typename What, typename Function>
  void Answer(Function function) {
    const std::optional<What> what = Take<What>();
    ASSERT_TRUE(what.has_value());
    function(job(), *what, At());
  }
  void Pass(absl::Duration time) {
    // In steps, as the shell's timer does.
    for (const absl::Time end = now_ + time; now_ < end;) {
      now_ += std::min(absl::Duration(absl::Milliseconds(500)), end - now_);
      decisions_->Tick(now_, now_);
    }
  }
  // Both ranks are in the save of `step`, which has its plan.
  void Plan(int64_t step) {
    for (int rank = 0; rank < 2; ++rank) Report(rank, Trainer(rank), {Begun(rank, step)});
    if (const auto plan = Take<PlanSave>(); plan.has_value()) {
      job().OnSavePlanned(plan->key, PlannedSave{"plan", 1}, At());
    }
  }
  // ... and all its files; a manifest is made, and handed out.
  PutVerdict BringToCommit(int64_t step) {
    Plan(step);
    Answer<ReserveAttempt>([](Job& job, const ReserveAttempt& what, const Moment& moment) {
      job.OnReserved(what.step, what.ticket, Reserved{1, kNonce}, moment);
    });
    for (int rank = 0; rank < 2; ++rank) Report(rank, Trainer(rank), {Written(rank, step)});
    Answer<MakeManifest>([](Job& job, const MakeManifest& what, const Moment& moment) {
      job.OnManifest(what.step, what.ticket, MadeManifest{std::make_shared<std::string>("m"), 1}, moment);
    });
    return Take<PutVerdict>().value_or(PutVerdict());
  }

  // Step 1's manifest may stand when its files are found to be gone. Returns what is put next.
  PutVerdict LoseFilesInDoubt() {
    Doubt(BringToCommit(1));
    Pass(absl::Seconds(1));
    const PutVerdict again = Take<PutVerdict>().value_or(PutVerdict());
    job().OnVerdict(1, again.ticket, PutOutcome{MakeError(Reason::kRootMismatch, "gone"), true}, At());
    EXPECT_EQ(OrderOf(0, 1).action(), v1::SaveOrder::WRITE) << "the first put may have come to stand";
    Pass(absl::Seconds(1));
    return Take<PutVerdict>().value_or(PutVerdict());
  }
  static VerdictSummary Standing(const PutVerdict& put, bool committed) {
    VerdictSummary verdict;
    verdict.step = put.step;
    verdict.attempt = put.attempt;
    verdict.committed = committed;
    verdict.error = put.error;
    verdict.commit_time = absl::FromUnixSeconds(1700000000);
    return verdict;
  }
  void Doubt(const PutVerdict& put) {
    job().OnVerdict(put.step, put.ticket, PutOutcome{MakeError(Reason::kStorageError, "I/O error"), true}, At());
  }

  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
  std::unique_ptr<Decisions> decisions_;
  std::vector<CoreAction> actions_;
};

// While the trainers declare other layouts one after the other, every set between is another one: n plans would be n²
// hashes and n plans of which all but the last are for nothing.
TEST_F(JobTest, CurrentPlan_LayoutsChangeOneByOne_IsAskedForOnceAtATime) {
  const auto declare = [&](int rank, const std::string& layout) {
    decisions_->layouts().Add(layout, 1);
    v1::SynchronizeAgentRequest request;
    *request.mutable_agent() = Identity(rank);
    v1::TrainerState& state = *request.mutable_state()->mutable_trainer();
    state.set_attached(true);
    state.set_incarnation(Trainer(rank));
    state.set_layout_digest(layout);
    ASSERT_TRUE(job().Synchronize(request, At()).ok());
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

TEST_F(JobTest, Commit_InDoubt_IsPutAgainUntilStorageSaysWhatStands) {
  PutVerdict put = BringToCommit(1);
  for (int i = 0; i < 60; ++i) {  // for three phase timeouts
    Doubt(put);
    EXPECT_FALSE(Take<PutVerdict>().has_value());
    Pass(absl::Seconds(1));
    const auto again = Take<PutVerdict>();
    ASSERT_TRUE(again.has_value());
    EXPECT_NE(again->manifest, nullptr);
    EXPECT_EQ(OrderOf(0, 1).action(), v1::SaveOrder::WRITE);
    put = *again;
  }
  EXPECT_TRUE(HasReason(StatusFromProto(OrderOf(0, 1).stalled()), Reason::kStorageStalled));
  job().OnVerdict(1, put.ticket, PutOutcome{Standing(put, true)}, At());
  EXPECT_EQ(OrderOf(0, 1).action(), v1::SaveOrder::COMMITTED);
  EXPECT_EQ(OrderOf(1, 1).commit_time().seconds(), 1700000000);
}

TEST_F(JobTest, Verdict_ReadsAsDamaged_MayHaveBeenMisread) {
  PutVerdict put = BringToCommit(1);
  VerdictSummary damaged = Standing(put, false);
  damaged.damaged = true;
  damaged.error = MakeError(Reason::kManifestCorrupt, "checksum");
  job().OnVerdict(1, put.ticket, PutOutcome{damaged}, At());
  EXPECT_EQ(OrderOf(0, 1).action(), v1::SaveOrder::WRITE) << "nobody hears ABORTED yet";
  Pass(absl::Seconds(1));
  put = *Take<PutVerdict>();
  job().OnVerdict(1, put.ticket, PutOutcome{Standing(put, true)}, At());
  EXPECT_EQ(OrderOf(0, 1).action(), v1::SaveOrder::COMMITTED);
}

TEST_F(JobTest, Save_SavesBeyondWhatIsKept_WaitForOthersToEnd) {
  std::vector<v1::SaveState> saves;
  for (int step = 0; step < 200; ++step) saves.push_back(Begun(0, step));
  Report(0, Trainer(0), saves);
  EXPECT_TRUE(job().Get({31, ""}, 0, At())->ok());
  EXPECT_FALSE(job().Get({32, ""}, 0, At())->ok()) << "each costs memory for every rank of the job";
  EXPECT_EQ(OrderOf(0, 150).action(), v1::SaveOrder::WAIT);
  for (int step = 0; step < 150; ++step) job().Cancel({step, ""}, At());
  Report(0, Trainer(0), {saves.begin() + 150, saves.end()});
  EXPECT_TRUE(job().Get({150, ""}, 0, At())->ok());
}

TEST_F(JobTest, RequestThatFailedAfterTheLastCommit_IsShown_UntilTheNextSaveBegins) {
  const PutVerdict put = BringToCommit(4);
  job().OnVerdict(put.step, put.ticket, PutOutcome{Standing(put, /*committed=*/true), false}, At());
  ASSERT_EQ(job().View(At()).checkpoint().state(), v1::Checkpoint::COMMITTED);
  for (const char* id : {"first", "second"}) {
    Request(id, 2);
    EXPECT_EQ(job().View(At()).checkpoint().state(), v1::Checkpoint::PREPARING);
    Pass(absl::Seconds(3));  // no rank reports a step to agree on
    const v1::Checkpoint shown = job().View(At()).checkpoint();
    EXPECT_EQ(shown.state(), v1::Checkpoint::ABORTED);
    EXPECT_EQ(shown.request_id(), id);
    EXPECT_TRUE(ReasonOf(StatusFromProto(shown.error())).has_value()) << shown.ShortDebugString();
    EXPECT_EQ((*job().Get(CheckpointKey(), 0, At()))->step(), 4) << "the latest that is committed";
  }
  Plan(5);
  EXPECT_EQ(job().View(At()).checkpoint().state(), v1::Checkpoint::COLLECTING);
}

TEST_F(JobTest, Request_RankIsLostAfterTheLastCommit_IsShownAsFailed) {
  const PutVerdict put = BringToCommit(4);
  job().OnVerdict(put.step, put.ticket, PutOutcome{Standing(put, /*committed=*/true), false}, At());
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
  EXPECT_EQ(shown.state(), v1::Checkpoint::ABORTED);
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

TEST_F(JobTest, CommitThatFailedForCertain_IsAborted) {
  const PutVerdict put = BringToCommit(1);
  job().OnVerdict(1, put.ticket, PutOutcome{MakeError(Reason::kNoSpace, "full"), false}, At());
  EXPECT_EQ(OrderOf(0, 1).action(), v1::SaveOrder::ABORT);
  EXPECT_EQ(ErrorOf(OrderOf(0, 1)), Reason::kNoSpace);
  const auto tombstone = Take<PutVerdict>();
  ASSERT_TRUE(tombstone.has_value());
  EXPECT_EQ(tombstone->manifest, nullptr);
}

TEST_F(JobTest, Commit_FailedAfterDoubt_StaysInDoubt) {
  PutVerdict put = BringToCommit(1);
  Doubt(put);
  Pass(absl::Seconds(1));
  put = *Take<PutVerdict>();
  job().OnVerdict(1, put.ticket, PutOutcome{MakeError(Reason::kNoSpace, "full"), false}, At());
  EXPECT_EQ(OrderOf(0, 1).action(), v1::SaveOrder::WRITE) << "the first put may come to stand yet";
}

TEST_F(JobTest, CommitInDoubt_WhoseFilesAreGone_IsAbortedWhenATombstoneStands) {
  const PutVerdict tombstone = LoseFilesInDoubt();
  ASSERT_EQ(tombstone.manifest, nullptr);
  job().OnVerdict(1, tombstone.ticket, PutOutcome{Standing(tombstone, false)}, At());
  EXPECT_EQ(OrderOf(0, 1).action(), v1::SaveOrder::ABORT);
  EXPECT_EQ(ErrorOf(OrderOf(0, 1)), Reason::kRootMismatch);
}

TEST_F(JobTest, CommitInDoubt_WhoseFilesAreGone_IsToldAsCommittedIfItStands) {
  const PutVerdict tombstone = LoseFilesInDoubt();
  job().OnVerdict(1, tombstone.ticket, PutOutcome{Standing(tombstone, true)}, At());
  EXPECT_EQ(OrderOf(0, 1).action(), v1::SaveOrder::COMMITTED);
}

TEST_F(JobTest, HangingCommit_IsStalled_NamedToAll_AndBlamedForLaterSaves) {
  const PutVerdict put = BringToCommit(1);
  Pass(absl::Seconds(5));
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_TRUE(HasReason(StatusFromProto(OrderOf(rank, 1).stalled()), Reason::kStorageStalled));
  }
  const auto view = job().Get({1, ""}, 0, At());
  EXPECT_EQ((*view)->state(), v1::Checkpoint::COMMITTING);
  EXPECT_TRUE(HasReason(StatusFromProto((*view)->error()), Reason::kStorageStalled));
  // The next save: rank 0 waits for the memory that the first one holds, rank 1's trainer for the first one's verdict.
  Report(0, Trainer(0), {Written(0, 1), Begun(0, 2)});
  Pass(Options().phase_timeout);
  EXPECT_EQ(OrderOf(0, 2).action(), v1::SaveOrder::ABORTED);
  EXPECT_EQ(ErrorOf(OrderOf(0, 2)), Reason::kStorageStalled) << OrderOf(0, 2).error().message();
  // A person gives up: a tombstone is put, and still nobody is told ABORTED before the answer.
  const auto cancelled = job().Cancel({1, ""}, At());
  EXPECT_EQ((*cancelled)->state(), v1::Checkpoint::COMMITTING);
  EXPECT_TRUE(HasReason(StatusFromProto((*cancelled)->error()), Reason::kStorageStalled));
  const auto tombstone = Take<PutVerdict>();
  ASSERT_TRUE(tombstone.has_value());
  EXPECT_EQ(tombstone->manifest, nullptr);
  EXPECT_EQ(OrderOf(0, 1).action(), v1::SaveOrder::WRITE);
  // The manifest's put comes back first, and stood.
  job().OnVerdict(1, put.ticket, PutOutcome{Standing(put, true)}, At());
  EXPECT_EQ(OrderOf(0, 1).action(), v1::SaveOrder::COMMITTED);
}

TEST_F(JobTest, Cancel_WhileInDoubt_AbortsWhenTheTombstoneStands) {
  BringToCommit(1);
  job().Cancel({1, ""}, At());
  const auto tombstone = Take<PutVerdict>();
  ASSERT_TRUE(tombstone.has_value());
  job().OnVerdict(1, tombstone->ticket, PutOutcome{Standing(*tombstone, false)}, At());
  EXPECT_EQ(OrderOf(0, 1).action(), v1::SaveOrder::ABORT);
  EXPECT_EQ(ErrorOf(OrderOf(0, 1)), Reason::kSaveCancelled);
}

TEST_F(JobTest, Save_UnansweredActions_EndWithStorageNamed) {
  Plan(1);
  ASSERT_TRUE(Take<ReserveAttempt>().has_value());
  Pass(absl::Seconds(11));
  EXPECT_EQ(OrderOf(0, 1).action(), v1::SaveOrder::ABORTED);
  EXPECT_EQ(ErrorOf(OrderOf(0, 1)), Reason::kStorageStalled);
}

TEST_F(JobTest, Reserve_NumberThatComesTooLate_IsBuried) {
  Plan(1);
  const auto reserve = Take<ReserveAttempt>();
  Pass(absl::Seconds(11));
  ASSERT_EQ(ErrorOf(OrderOf(0, 1)), Reason::kStorageStalled) << "the save has ended without a number";
  job().OnReserved(1, reserve->ticket, Reserved{1, kNonce}, At());
  Pass(3 * Options().lease_ttl);
  const auto tombstone = Take<PutVerdict>();
  ASSERT_TRUE(tombstone.has_value());
  EXPECT_EQ(tombstone->manifest, nullptr);
}

TEST_F(JobTest, Remove_NotAnswered_HoldsNobodyUp) {
  const PutVerdict put = BringToCommit(1);
  job().OnVerdict(1, put.ticket, PutOutcome{MakeError(Reason::kNoSpace, "full"), false}, At());
  const auto tombstone = Take<PutVerdict>();
  job().OnVerdict(1, tombstone->ticket, PutOutcome{Standing(*tombstone, false)}, At());
  for (int rank = 0; rank < 2; ++rank) {
    v1::SaveState stopped = Written(rank, 1);
    stopped.set_phase(v1::SaveState::STOPPED);
    Report(rank, Trainer(rank), {stopped});
  }
  ASSERT_TRUE(Take<RemoveFiles>().has_value());
  Pass(absl::Seconds(10));
  EXPECT_EQ(OrderOf(0, 1).action(), v1::SaveOrder::ABORTED);
}

TEST_F(JobTest, Trainer_SuccessorOfOneThatEndedBeforeItBegan_TakesItsPlace) {
  // What a client that closes and another that connects look like when the news of the first is late.
  Report(0, Trainer(0), {Begun(0, 2)});
  Report(1, 0);
  Pass(absl::Seconds(1));
  Report(1, 999, {Begun(1, 2)});
  EXPECT_NE(OrderOf(0, 2).action(), v1::SaveOrder::ABORT);
  EXPECT_TRUE(Take<PlanSave>().has_value()) << "both are in it";
}

TEST_F(JobTest, WhatAPredecessorStaged_IsNotCommittedWithTheirSuccessors) {
  v1::SaveState staged = Begun(0, 1);
  staged.set_phase(v1::SaveState::STAGED);
  staged.set_trainer_incarnation(Trainer(0));
  Report(0, 900, {staged});  // all trainers start again before rank 1 has begun; the agent tells both in one message
  Report(1, 901);
  Pass(absl::Seconds(1));
  const v1::SaveOrder order = OrderOf(0, 1);
  EXPECT_TRUE(HasReason(StatusFromProto(order.error()), Reason::kTrainerLost)) << order.ShortDebugString();
  EXPECT_EQ(MetadataOf(StatusFromProto(order.error()))["ranks"], "0");
}

TEST_F(JobTest, TrainerThatLeftAfterItStaged_IsNotMissed) {
  v1::SaveState staged = Begun(0, 1);
  staged.set_phase(v1::SaveState::STAGED);
  Report(0, Trainer(0), {staged});
  Report(0, 0, {staged});
  Pass(absl::Seconds(1));
  EXPECT_EQ(job().View(At()).checkpoint().state(), v1::Checkpoint::COLLECTING);
}

TEST_F(JobTest, TrainerThatEndsAndHasNoSuccessor_IsNamed) {
  DecisionOptions options = Options();
  options.lease_ttl = absl::Seconds(10);
  Start(options);
  for (int second = 0; second <= 10; ++second) {
    Report(0, Trainer(0), {Begun(0, 2)});
    Report(1, 0);
    Pass(absl::Seconds(1));
  }
  EXPECT_EQ(ErrorOf(OrderOf(0, 2)), Reason::kTrainerLost) << OrderOf(0, 2).error().message();
}

TEST_F(JobTest, Verdict_OfAPredecessor_IsNotToldToItsSuccessor) {
  // The first trainer of rank 0 begins; both are killed; rank 1's successor begins before rank 0's death is known.
  Report(0, Trainer(0), {Begun(0, 1)});
  Report(1, 0);
  Report(1, 901, {Begun(1, 1)});
  Report(0, 0, {Begun(0, 1)});
  EXPECT_EQ(ErrorOf(OrderOf(0, 1)), Reason::kTrainerLost);
  Pass(absl::Seconds(1));
  EXPECT_EQ(OrderOf(1, 1).action(), v1::SaveOrder::WAIT) << OrderOf(1, 1).ShortDebugString();
  // The successor of rank 0 joins it.
  Report(0, 900, {Begun(0, 1, 2)});
  EXPECT_TRUE(Take<PlanSave>().has_value());
}

TEST_F(JobTest, Trainer_AttachedAfterTheAbort_BeginsANewSave) {
  Report(0, Trainer(0), {Begun(0, 1)});
  Report(0, 0, {Begun(0, 1)});
  Report(1, 901);
  Report(1, 901, {Begun(1, 1)});
  EXPECT_EQ(OrderOf(1, 1).action(), v1::SaveOrder::WAIT);
}

TEST_F(JobTest, Save_StepThatWasCommitted_IsReadAgainBeforeASaveOfItIsRefused) {
  const PutVerdict put = BringToCommit(1);
  job().OnVerdict(1, put.ticket, PutOutcome{Standing(put, true)}, At());
  for (int rank = 0; rank < 2; ++rank) Report(rank, Trainer(rank), {Begun(rank, 1, 2)});
  auto read = Take<ReadStep>();
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(OrderOf(0, 1).action(), v1::SaveOrder::WAIT);
  Recovered recovered;
  recovered.verdict.push_back(Standing(put, true));
  job().OnStepRead(1, read->ticket, recovered, At());
  EXPECT_EQ(ErrorOf(OrderOf(0, 1)), Reason::kStepCommitted);
  // Rank 1 asked after the read had begun: it is read again.
  read = Take<ReadStep>();
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(OrderOf(1, 1).action(), v1::SaveOrder::WAIT);
  job().OnStepRead(1, read->ticket, recovered, At());
  EXPECT_EQ(ErrorOf(OrderOf(1, 1)), Reason::kStepCommitted);
  // People remove the step.
  for (int rank = 0; rank < 2; ++rank) Report(rank, Trainer(rank), {Begun(rank, 1, 3)});
  read = Take<ReadStep>();
  ASSERT_TRUE(read.has_value());
  job().OnStepRead(1, read->ticket, Recovered(), At());
  EXPECT_TRUE(Take<ReserveAttempt>().has_value()) << "a save of it has begun";
}

TEST_F(JobTest, Save_CallThatWasRefused_JoinsNoLaterSaveOfTheStep) {
  const PutVerdict put = BringToCommit(1);
  job().OnVerdict(1, put.ticket, PutOutcome{Standing(put, true)}, At());
  Recovered recovered;
  recovered.verdict.push_back(Standing(put, true));
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
  job().OnStepRead(1, read->ticket, Recovered(), At());
  EXPECT_EQ(OrderOf(0, 1).action(), v1::SaveOrder::WAIT);
  EXPECT_EQ(ErrorOf(OrderOf(1, 1)), Reason::kStepCommitted);
  Report(1, 901);
  Report(1, 901, {Begun(1, 1, 3)});
  EXPECT_TRUE(Take<ReserveAttempt>().has_value()) << "both are in the save";
  EXPECT_EQ(ErrorOf(OrderOf(1, 1)), std::nullopt);
}

TEST_F(JobTest, Recover_StorageHangs_IsToldToTheRanks) {
  decisions_ = std::make_unique<Decisions>(Options());
  for (int rank = 0; rank < 2; ++rank) Register(rank);
  Report(0, Trainer(0), {Begun(0, 1)});
  EXPECT_FALSE(OrderOf(0, 1).has_stalled());
  Pass(absl::Seconds(6));
  EXPECT_EQ(OrderOf(0, 1).action(), v1::SaveOrder::WAIT);
  EXPECT_TRUE(HasReason(StatusFromProto(OrderOf(0, 1).stalled()), Reason::kStorageStalled));
}

TEST_F(JobTest, Layouts_TenThousand_LeaveNothingBehind) {
  for (int i = 0; i < 10'000; ++i) {
    const std::string digest = absl::StrCat("layout ", i);
    v1::SynchronizeAgentRequest request;
    *request.mutable_agent() = Identity(0);
    request.mutable_state()->mutable_trainer()->set_attached(true);
    request.mutable_state()->mutable_trainer()->set_incarnation(Trainer(0));
    v1::LoadState& load = *request.mutable_state()->add_loads();
    load.set_number(static_cast<uint64_t>(i + 1));
    load.set_layout_digest(digest);
    load.set_trainer_incarnation(Trainer(0));
    load.set_phase(v1::LoadState::FAILED);
    ASSERT_TRUE(job().Synchronize(request, At()).ok());
    decisions_->layouts().Add(digest, 100);
    decisions_->layouts().TakeDropped();
    decisions_->TakeActions();
    decisions_->TakeLog();
    now_ += absl::Seconds(1);
    decisions_->Tick(now_, now_);
    ASSERT_LE(decisions_->layouts().size(), LayoutTable::kUnheldKept + 4);
    ASSERT_LE(job().View(At()).loads_size(), 32);
  }
}

}  // namespace
}  // namespace cairn
