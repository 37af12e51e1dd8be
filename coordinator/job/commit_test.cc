// Tests how a save ends if storage fails, hangs, or answers late: nobody is told an end before it is certain.
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "common/status/reason.h"
#include "common/status/status_proto.h"
#include "coordinator/testing/job_fixture.h"

namespace cairn {
namespace {

class CommitTest : public TwoRankFixture {
 protected:
  void Doubt(const PutOutcome& put) {
    job().OnOutcome(put.step, put.ticket, PutAnswer{MakeError(Reason::kStorageError, "I/O error"), true}, At());
  }
  // Step 1's manifest may stand when its files are found to be gone. Returns what is put next.
  PutOutcome LoseFilesInDoubt() {
    Doubt(BringToCommit(1));
    Pass(absl::Seconds(1));
    const PutOutcome again = Take<PutOutcome>().value_or(PutOutcome());
    job().OnOutcome(1, again.ticket, PutAnswer{MakeError(Reason::kRootMismatch, "gone"), true}, At());
    EXPECT_EQ(OrderOf(0, 1).phase(), v1::Phase::WRITING) << "the first put may have come to stand";
    Pass(absl::Seconds(1));
    return Take<PutOutcome>().value_or(PutOutcome());
  }
};

TEST_F(CommitTest, Commit_InDoubt_IsPutAgainUntilStorageSaysWhatStands) {
  PutOutcome put = BringToCommit(1);
  for (int i = 0; i < 60; ++i) {  // for three phase timeouts
    Doubt(put);
    EXPECT_FALSE(Take<PutOutcome>().has_value());
    Pass(absl::Seconds(1));
    const auto again = Take<PutOutcome>();
    ASSERT_TRUE(again.has_value());
    EXPECT_NE(again->manifest, nullptr);
    EXPECT_EQ(OrderOf(0, 1).phase(), v1::Phase::WRITING);
    put = *again;
  }
  EXPECT_TRUE(HasReason(StatusFromProto(OrderOf(0, 1).stalled()), Reason::kStorageStalled));
  job().OnOutcome(1, put.ticket, PutAnswer{Standing(put, true)}, At());
  EXPECT_EQ(OrderOf(0, 1).phase(), v1::Phase::COMMITTED);
  EXPECT_EQ(OrderOf(1, 1).commit_time().seconds(), 1700000000);
}

TEST_F(CommitTest, Manifest_RanksHaveMetrics_HasThoseOfRank0) {
  Number(1);
  for (int rank = 0; rank < 2; ++rank) {
    v1::SaveState state = Written(rank, 1);
    v1::Metric& metric = *state.add_metrics();
    metric.set_name(rank == 0 ? "loss" : "cost");
    metric.set_value(0.25);
    Report(rank, Trainer(rank), {state});
  }
  const auto make = Take<MakeManifest>();
  ASSERT_TRUE(make.has_value());
  EXPECT_EQ(make->metrics, (std::vector<Metric>{{"loss", 0.25}}));
}

// No reader would accept such a manifest.
TEST_F(CommitTest, Manifest_Rank0ReportsWhatNoCheckpointHas_IsAborted) {
  Number(1);
  Report(1, Trainer(1), {Written(1, 1)});
  v1::SaveState state = Written(0, 1);
  state.mutable_resumed_from()->set_step(-5);
  Report(0, Trainer(0), {state});
  EXPECT_FALSE(Take<MakeManifest>().has_value());
  EXPECT_EQ(OrderOf(0, 1).phase(), v1::Phase::ABORTING);
  EXPECT_EQ(ErrorOf(OrderOf(0, 1)), Reason::kBadStep);
  EXPECT_EQ(MetadataOf(StatusFromProto(OrderOf(1, 1).error())).at("ranks"), "0");
}

TEST_F(CommitTest, Manifest_Rank0ReportsAMetricWithoutAName_IsAborted) {
  Number(1);
  Report(1, Trainer(1), {Written(1, 1)});
  v1::SaveState state = Written(0, 1);
  state.add_metrics()->set_value(1);
  Report(0, Trainer(0), {state});
  EXPECT_FALSE(Take<MakeManifest>().has_value());
  EXPECT_EQ(ErrorOf(OrderOf(0, 1)), Reason::kBadRequest);
}

TEST_F(CommitTest, Outcome_ReadsAsDamaged_MayHaveBeenMisread) {
  PutOutcome put = BringToCommit(1);
  StoredAttempt damaged = Standing(put, false);
  damaged.damaged = true;
  damaged.error = MakeError(Reason::kManifestCorrupt, "checksum");
  job().OnOutcome(1, put.ticket, PutAnswer{damaged}, At());
  EXPECT_EQ(OrderOf(0, 1).phase(), v1::Phase::WRITING) << "nobody hears ABORTED yet";
  Pass(absl::Seconds(1));
  put = *Take<PutOutcome>();
  job().OnOutcome(1, put.ticket, PutAnswer{Standing(put, true)}, At());
  EXPECT_EQ(OrderOf(0, 1).phase(), v1::Phase::COMMITTED);
}

TEST_F(CommitTest, CommitThatFailedForCertain_IsAborted) {
  const PutOutcome put = BringToCommit(1);
  job().OnOutcome(1, put.ticket, PutAnswer{MakeError(Reason::kNoSpace, "full"), false}, At());
  EXPECT_EQ(OrderOf(0, 1).phase(), v1::Phase::ABORTING);
  EXPECT_EQ(ErrorOf(OrderOf(0, 1)), Reason::kNoSpace);
  const auto abort_record = Take<PutOutcome>();
  ASSERT_TRUE(abort_record.has_value());
  EXPECT_EQ(abort_record->manifest, nullptr);
}

TEST_F(CommitTest, Abort_StorageTakesNoAbortRecord_IsTriedAgainEachSecond) {
  const PutOutcome put = BringToCommit(1);
  job().OnOutcome(1, put.ticket, PutAnswer{MakeError(Reason::kNoSpace, "full"), false}, At());
  for (int i = 0; i < 5; ++i) {
    const auto abort_record = Take<PutOutcome>();
    ASSERT_TRUE(abort_record.has_value()) << i;
    EXPECT_EQ(abort_record->manifest, nullptr);
    job().OnOutcome(1, abort_record->ticket, PutAnswer{MakeError(Reason::kNoSpace, "full"), false}, At());
    EXPECT_FALSE(Take<PutOutcome>().has_value());
    Pass(absl::Seconds(1));
  }
}

// Another coordinator has given out the same number, with a directory of its own.
TEST_F(CommitTest, Written_IntoTheAttemptOfAnotherCoordinator_DoesNotCount) {
  Number(1);
  Report(0, Trainer(0), {Written(0, 1)});
  v1::SaveState other = Written(1, 1);
  other.set_attempt_nonce(kNonce + 1);
  Report(1, Trainer(1), {other});
  EXPECT_FALSE(Take<MakeManifest>().has_value());
}

TEST_F(CommitTest, Commit_FailedAfterDoubt_StaysInDoubt) {
  PutOutcome put = BringToCommit(1);
  Doubt(put);
  Pass(absl::Seconds(1));
  put = *Take<PutOutcome>();
  job().OnOutcome(1, put.ticket, PutAnswer{MakeError(Reason::kNoSpace, "full"), false}, At());
  EXPECT_EQ(OrderOf(0, 1).phase(), v1::Phase::WRITING) << "the first put may come to stand yet";
}

TEST_F(CommitTest, CommitInDoubt_WhoseFilesAreGone_IsAbortedWhenAnAbortRecordStands) {
  const PutOutcome abort_record = LoseFilesInDoubt();
  ASSERT_EQ(abort_record.manifest, nullptr);
  job().OnOutcome(1, abort_record.ticket, PutAnswer{Standing(abort_record, false)}, At());
  EXPECT_EQ(OrderOf(0, 1).phase(), v1::Phase::ABORTING);
  EXPECT_EQ(ErrorOf(OrderOf(0, 1)), Reason::kRootMismatch);
}

TEST_F(CommitTest, CommitInDoubt_WhoseFilesAreGone_IsToldAsCommittedIfItStands) {
  const PutOutcome abort_record = LoseFilesInDoubt();
  job().OnOutcome(1, abort_record.ticket, PutAnswer{Standing(abort_record, true)}, At());
  EXPECT_EQ(OrderOf(0, 1).phase(), v1::Phase::COMMITTED);
}

TEST_F(CommitTest, HangingCommit_IsStalled_NamedToAll_AndBlamedForLaterSaves) {
  const PutOutcome put = BringToCommit(1);
  Pass(absl::Seconds(5));
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_TRUE(HasReason(StatusFromProto(OrderOf(rank, 1).stalled()), Reason::kStorageStalled));
  }
  const auto view = job().Get({1, ""}, 0, At());
  EXPECT_EQ((*view)->state(), v1::Phase::COMMITTING);
  EXPECT_TRUE(HasReason(StatusFromProto((*view)->error()), Reason::kStorageStalled));
  // The next save: rank 0 waits for the memory that the first one holds, rank 1's trainer for the first one's outcome.
  Report(0, Trainer(0), {Written(0, 1), Begun(0, 2)});
  Pass(Options().phase_timeout);
  EXPECT_EQ(OrderOf(0, 2).phase(), v1::Phase::ABORTED);
  EXPECT_EQ(ErrorOf(OrderOf(0, 2)), Reason::kStorageStalled) << OrderOf(0, 2).error().message();
  // A person gives up: an abort record is put, and still nobody is told ABORTED before the answer.
  const auto cancelled = job().Cancel({1, ""}, At());
  EXPECT_EQ((*cancelled)->state(), v1::Phase::COMMITTING);
  EXPECT_TRUE(HasReason(StatusFromProto((*cancelled)->error()), Reason::kStorageStalled));
  const auto abort_record = Take<PutOutcome>();
  ASSERT_TRUE(abort_record.has_value());
  EXPECT_EQ(abort_record->manifest, nullptr);
  EXPECT_EQ(OrderOf(0, 1).phase(), v1::Phase::WRITING);
  // The manifest's put comes back first, and stood.
  job().OnOutcome(1, put.ticket, PutAnswer{Standing(put, true)}, At());
  EXPECT_EQ(OrderOf(0, 1).phase(), v1::Phase::COMMITTED);
}

// The ranks' memory holds step 8 until that is committed, and step 4 waits for the memory.
TEST_F(CommitTest, Commit_SaveOfAnEarlierStepBeganLater_DoesNotHoldItUp) {
  Number(8);
  for (int rank = 0; rank < 2; ++rank) Report(rank, Trainer(rank), {Written(rank, 8), Begun(rank, 4)});
  Answer<MakeManifest>([](Job& job, const MakeManifest& what, const Moment& at) {
    job.OnManifest(what.step, what.ticket, MadeManifest{std::make_shared<std::string>("m"), 1}, at);
  });
  const auto put = Take<PutOutcome>();
  ASSERT_TRUE(put.has_value()) << "else each of the two waits for the other";
  EXPECT_EQ(put->step, 8);
  EXPECT_EQ(core_->Missed(), "");
}

TEST_F(CommitTest, Commit_SaveOfAnEarlierStepBeganFirst_IsWaitedFor) {
  Number(4);
  for (int rank = 0; rank < 2; ++rank) Report(rank, Trainer(rank), {Written(rank, 4), Begun(rank, 8)});
  const auto first = Take<MakeManifest>();
  ASSERT_TRUE(first.has_value());
  Answer<ReserveAttempt>([](Job& job, const ReserveAttempt& what, const Moment& at) {
    job.OnReserved(what.step, what.ticket, Reserved{1, kNonce}, at);
  });
  for (int rank = 0; rank < 2; ++rank) Report(rank, Trainer(rank), {Written(rank, 4), Written(rank, 8)});
  Answer<MakeManifest>([](Job& job, const MakeManifest& what, const Moment& at) {
    EXPECT_EQ(what.step, 8);
    job.OnManifest(what.step, what.ticket, MadeManifest{std::make_shared<std::string>("m"), 1}, at);
  });
  EXPECT_FALSE(Take<PutOutcome>().has_value());
  job().OnManifest(4, first->ticket, MadeManifest{std::make_shared<std::string>("m"), 1}, At());
  const auto put = Take<PutOutcome>();
  ASSERT_TRUE(put.has_value());
  EXPECT_EQ(put->step, 4);
}

TEST_F(CommitTest, Cancel_WhileInDoubt_AbortsWhenTheAbortRecordStands) {
  BringToCommit(1);
  job().Cancel({1, ""}, At());
  const auto abort_record = Take<PutOutcome>();
  ASSERT_TRUE(abort_record.has_value());
  job().OnOutcome(1, abort_record->ticket, PutAnswer{Standing(*abort_record, false)}, At());
  EXPECT_EQ(OrderOf(0, 1).phase(), v1::Phase::ABORTING);
  EXPECT_EQ(ErrorOf(OrderOf(0, 1)), Reason::kSaveCancelled);
}

TEST_F(CommitTest, Save_UnansweredActions_EndWithStorageNamed) {
  Plan(1);
  ASSERT_TRUE(Take<ReserveAttempt>().has_value());
  Pass(absl::Seconds(11));
  EXPECT_EQ(OrderOf(0, 1).phase(), v1::Phase::ABORTED);
  EXPECT_EQ(ErrorOf(OrderOf(0, 1)), Reason::kStorageStalled);
}

TEST_F(CommitTest, Reserve_NumberThatComesTooLate_IsBuried) {
  Plan(1);
  const auto reserve = Take<ReserveAttempt>();
  Pass(absl::Seconds(11));
  ASSERT_EQ(ErrorOf(OrderOf(0, 1)), Reason::kStorageStalled) << "the save has ended without a number";
  job().OnReserved(1, reserve->ticket, Reserved{1, kNonce}, At());
  Pass(3 * Options().lease_ttl);
  const auto abort_record = Take<PutOutcome>();
  ASSERT_TRUE(abort_record.has_value());
  EXPECT_EQ(abort_record->manifest, nullptr);
}

TEST_F(CommitTest, Reserve_IsRefused_NamesTheStepOnce) {
  const std::pair<absl::Status, const char*> refusals[] = {
      {MakeError(Reason::kStepCommitted, "demo@1 is committed already"), "demo@1 is committed already"},
      {MakeError(Reason::kNoSpace, "mkdir /ckpt: full"), "demo@1: mkdir /ckpt: full"},
  };
  for (const auto& [refused, told] : refusals) {
    StartJob(Options());
    for (int rank = 0; rank < 2; ++rank) Register(rank);
    Recover(StoredAttempts());
    Plan(1);
    const auto reserve = Take<ReserveAttempt>();
    ASSERT_TRUE(reserve.has_value());
    job().OnReserved(1, reserve->ticket, refused, At());
    const absl::Status error = StatusFromProto(OrderOf(0, 1).error());
    EXPECT_EQ(error.message(), told);
    EXPECT_EQ(MetadataOf(error)["step"], "1");
  }
}

TEST_F(CommitTest, Remove_NotAnswered_HoldsNobodyUp) {
  const PutOutcome put = BringToCommit(1);
  job().OnOutcome(1, put.ticket, PutAnswer{MakeError(Reason::kNoSpace, "full"), false}, At());
  const auto abort_record = Take<PutOutcome>();
  job().OnOutcome(1, abort_record->ticket, PutAnswer{Standing(*abort_record, false)}, At());
  for (int rank = 0; rank < 2; ++rank) {
    v1::SaveState stopped = Written(rank, 1);
    stopped.set_phase(v1::Phase::STOPPED);
    Report(rank, Trainer(rank), {stopped});
  }
  ASSERT_TRUE(Take<RemoveFiles>().has_value());
  Pass(absl::Seconds(10));
  EXPECT_EQ(OrderOf(0, 1).phase(), v1::Phase::ABORTED);
}

TEST_F(CommitTest, Recover_StorageHangs_IsToldToTheRanks) {
  StartJob(Options());
  for (int rank = 0; rank < 2; ++rank) Register(rank);
  Report(0, Trainer(0), {Begun(0, 1)});
  EXPECT_FALSE(OrderOf(0, 1).has_stalled());
  Pass(absl::Seconds(6));
  EXPECT_EQ(OrderOf(0, 1).phase(), v1::Phase::WAITING);
  EXPECT_TRUE(HasReason(StatusFromProto(OrderOf(0, 1).stalled()), Reason::kStorageStalled));
}

}  // namespace
}  // namespace cairn
