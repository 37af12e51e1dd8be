// Tests what a trainer asks of its saves, through the session that they are part of.
#include "agent/session/rank_saves.h"

#include <gtest/gtest.h>

#include "agent/testing/layouts.h"
#include "agent/testing/session_fixture.h"
#include "common/status/reason.h"
#include "common/status/status_proto.h"

namespace cairn {
namespace {

using testing::MakeLayout;
using testing::Whole;

using RankSavesTest = ServedSession;

TEST_F(RankSavesTest, Save_OrderedStepByStep_GoesThroughItsPhasesAndTellsItsOutcome) {
  EXPECT_TRUE(Begin(7)->pending());
  EXPECT_EQ(Only().phase(), v1::Phase::PLANNING);
  ASSERT_TRUE(Order(7, v1::Phase::STAGING).ok());
  EXPECT_TRUE(Begin(7)->pending());
  EXPECT_TRUE(Serve().empty());
  const auto begun = Begin(7);
  ASSERT_TRUE(begun.ok());
  EXPECT_EQ(begun->placements_size(), 3);
  EXPECT_EQ(begun->slab().descriptor_id(), 101u);
  EXPECT_EQ(begun->check_items_size(), 1) << "the shared object";
  EXPECT_EQ(Only().phase(), v1::Phase::STAGING);
  EXPECT_TRUE(Commit(begun->save()).ok());
  EXPECT_TRUE(Commit(begun->save()).ok()) << "idempotent";
  EXPECT_EQ(Only().phase(), v1::Phase::STAGED);
  EXPECT_TRUE(Wait(7, begun->save())->pending());
  ASSERT_TRUE(Order(7, v1::Phase::WRITING).ok());
  const auto actions = Serve();
  ASSERT_EQ(actions.size(), 1u);
  EXPECT_EQ(std::get<action::StartWrite>(actions[0]).directory, "demo/dir");
  session_.saves().OnWriteEnded(begun->save(), Result());
  EXPECT_EQ(Only().phase(), v1::Phase::WRITTEN);
  EXPECT_EQ(Only().result().files_size(), 1);
  ASSERT_TRUE(Order(7, v1::Phase::COMMITTED).ok());
  EXPECT_EQ(State().saves_size(), 0);
  EXPECT_EQ(Wait(7, begun->save())->checkpoint().state(), v1::Phase::COMMITTED);
}

TEST_F(RankSavesTest, Save_OfACommittedStep_AsksTheCoordinatorBeforeAnythingIsStaged) {
  StartWriting(7);
  ASSERT_TRUE(Order(7, v1::Phase::COMMITTED).ok());
  Serve();
  EXPECT_TRUE(Begin(7)->pending()) << "people may have removed it";
  EXPECT_EQ(Only().call(), 2u);
  EXPECT_EQ(Only().phase(), v1::Phase::PLANNING);
  const absl::Status committed = MakeError(Reason::kStepCommitted, "it is");
  ASSERT_TRUE(Order(7, v1::Phase::ABORTED, "", 0, committed).ok());
  EXPECT_TRUE(HasReason(Begin(7).status(), Reason::kStepCommitted));
}

TEST_F(RankSavesTest, StalledStorage_WhileSavesWait_IsToldAndBlamedForTheSlab) {
  const uint64_t first = StartWriting(7);
  session_.saves().OnWriteEnded(first, Result());
  State();
  v1::SynchronizeAgentResponse response;
  response.set_coordinator_epoch(5);
  response.set_revision(++revision_);
  auto* order = response.add_saves();
  order->set_step(7);
  order->set_phase(v1::Phase::WRITING);
  order->set_plan_digest("p1");
  order->set_attempt(1);
  *order->mutable_stalled() = StatusToProto(MakeError(Reason::kStorageStalled, "storage does not answer"));
  ASSERT_TRUE(session_.OnOrders(response).ok());
  const auto waiting = Wait(7, first);
  EXPECT_TRUE(waiting->pending());
  EXPECT_TRUE(HasReason(StatusFromProto(waiting->stalled()), Reason::kStorageStalled));
  EXPECT_TRUE(Begin(8)->pending()) << "the slab holds step 7";
  now_ += absl::Hours(1);
  session_.OnTick(now_);
  EXPECT_TRUE(HasReason(Begin(8).status(), Reason::kStorageStalled)) << Begin(8).status();
}

TEST_F(RankSavesTest, CommitTime_OfACommittedSave_IsTold) {
  const uint64_t save = StartWriting(7);
  session_.saves().OnWriteEnded(save, Result());
  State();
  v1::SynchronizeAgentResponse response;
  response.set_coordinator_epoch(5);
  response.set_revision(++revision_);
  auto* order = response.add_saves();
  order->set_step(7);
  order->set_phase(v1::Phase::COMMITTED);
  order->set_attempt(1);
  order->mutable_commit_time()->set_seconds(1234);
  ASSERT_TRUE(session_.OnOrders(response).ok());
  EXPECT_EQ(Wait(7, save)->checkpoint().commit_time().seconds(), 1234);
}

TEST_F(RankSavesTest, NextSave_OfAnUnchangedLayout_OpensTheSlabAtOnce) {
  const uint64_t first = StartWriting(7);
  session_.saves().OnWriteEnded(first, Result());
  ASSERT_TRUE(Order(7, v1::Phase::COMMITTED).ok());
  const auto begun = Begin(8);
  ASSERT_TRUE(begun.ok());
  EXPECT_FALSE(begun->pending());
  EXPECT_EQ(begun->slab().descriptor_id(), 101u) << "the same slab";
  EXPECT_EQ(Only().plan_digest(), "p1");
  EXPECT_TRUE(Serve().empty());
}

TEST_F(RankSavesTest, CheckReplicas_WhenOrdered_AsksForWhatThisRankDoesNotWrite) {
  EXPECT_TRUE(Begin(7).ok());
  State();
  v1::SynchronizeAgentResponse response;
  response.set_coordinator_epoch(5);
  auto* order = response.add_saves();
  order->set_step(7);
  order->set_phase(v1::Phase::STAGING);
  order->set_plan_digest("p1");
  order->set_check_replicas(true);
  ASSERT_TRUE(session_.OnOrders(response).ok());
  Serve();
  const auto begun = Begin(7);
  ASSERT_EQ(begun->check_items_size(), 2);
  EXPECT_EQ(begun->check_items(0), 2u);
  EXPECT_EQ(begun->check_items(1), 3u) << "the shared object";
  EXPECT_TRUE(HasReason(Commit(begun->save()), Reason::kBadRequest)) << "a checksum is missing";
  v1::CommitStagingRequest request;
  request.set_trainer_incarnation(kTrainer);
  request.set_save(begun->save());
  request.add_object_sizes(1);
  request.add_check_checksums(0xabcd);
  request.add_check_checksums(0xef);
  ASSERT_TRUE(session_.Ask(request, now_).ok());
  ASSERT_EQ(Only().replica_checksums_size(), 2);
  EXPECT_EQ(Only().replica_checksums(0).crc32c(), 0xabcdu);
}

TEST_F(RankSavesTest, TrainersEnd_BeforeStaging_FailsTheSaveAndLaterChangesNothing) {
  const uint64_t save = StartWriting(7);
  session_.OnTrainerGone(kTrainer, TrainerEnd::kEnded);
  session_.saves().OnWriteEnded(save, Result());
  EXPECT_EQ(Only().phase(), v1::Phase::WRITTEN);
  EXPECT_TRUE(HasReason(Begin(8).status(), Reason::kNotRegistered));
  ASSERT_TRUE(Order(7, v1::Phase::COMMITTED).ok());

  session_.Attach(trainer_ = 78);
  EXPECT_EQ(Wait(7)->checkpoint().state(), v1::Phase::COMMITTED) << "its successor may ask";
  const auto begun = Begin(8);
  ASSERT_TRUE(begun.ok());
  EXPECT_FALSE(begun->pending());
  session_.OnTrainerGone(78, TrainerEnd::kReplaced);
  EXPECT_EQ(Only().phase(), v1::Phase::FAILED);
  EXPECT_TRUE(HasReason(StatusFromProto(Only().error()), Reason::kTrainerLost));
  ASSERT_TRUE(Order(8, v1::Phase::ABORTED, "p1", 1, StatusFromProto(Only().error())).ok());
  // It may copy still: its slab is nobody else's.
  session_.Attach(trainer_ = 79);
  EXPECT_TRUE(Begin(9)->pending());
  Serve();
  EXPECT_EQ(Begin(9)->slab().descriptor_id(), 102u);
}

TEST_F(RankSavesTest, Error_BeforeStaging_IsToldAndTheNextCallWaitsForTheOutcome) {
  slab_error_ = MakeError(Reason::kMemoryLimit, "too large");
  EXPECT_TRUE(Begin(7).ok());
  ASSERT_TRUE(Order(7, v1::Phase::STAGING).ok());
  Serve();
  EXPECT_TRUE(HasReason(Begin(7).status(), Reason::kMemoryLimit));
  EXPECT_EQ(Only().phase(), v1::Phase::FAILED);
  EXPECT_TRUE(Begin(7)->pending()) << "a new call, while the coordinator aborts the old one";
  now_ += absl::Seconds(61);
  EXPECT_TRUE(HasReason(Begin(7).status(), Reason::kSaveInProgress));
  ASSERT_TRUE(Order(7, v1::Phase::ABORTED).ok());
  slab_error_ = absl::OkStatus();
  EXPECT_TRUE(Begin(7)->pending());
  EXPECT_EQ(Only().call(), 2u);
}

// It may bring another state, and must not be told that this one is committed.
TEST_F(RankSavesTest, NextCall_WhileTheStepIsWritten_WaitsForItsOutcomeAndIsNotToldIt) {
  const uint64_t first = StartWriting(7);
  const auto next = Begin(7);
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_TRUE(next->pending());
  EXPECT_EQ(next->placements_size(), 0) << "what is being written stays as it is";
  session_.saves().OnWriteEnded(first, Result());
  EXPECT_TRUE(Begin(7)->pending()) << "a manifest may name it";
  ASSERT_TRUE(Order(7, v1::Phase::COMMITTED).ok());
  EXPECT_TRUE(Begin(7)->pending()) << "the coordinator is asked: the step is committed";
  EXPECT_EQ(Only().call(), 2u);
  EXPECT_EQ(Only().phase(), v1::Phase::PLANNING);
  EXPECT_EQ(Wait(7, first)->checkpoint().state(), v1::Phase::COMMITTED);
}

TEST_F(RankSavesTest, NextCall_WhileNothingIsWrittenYet_TakesThePlaceOfTheFirst) {
  EXPECT_TRUE(Begin(7).ok());
  ASSERT_TRUE(Order(7, v1::Phase::STAGING).ok());
  Serve();
  const auto first = Begin(7);
  ASSERT_TRUE(first.ok() && Commit(first->save()).ok());
  EXPECT_EQ(Only().phase(), v1::Phase::STAGED);
  now_ += absl::Minutes(2);
  const auto next = Begin(7);
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_EQ(next->save(), first->save());
  EXPECT_GT(next->placements_size(), 0);
  session_.OnTick(now_);
  ASSERT_TRUE(Order(7, v1::Phase::WRITING).ok());
  const auto actions = Serve();
  ASSERT_EQ(actions.size(), 1u);
  EXPECT_EQ(std::get<action::StartWrite>(actions[0]).staging, next->staging()) << "of this call, and not of the first";
  EXPECT_EQ(Only().phase(), v1::Phase::STAGING);
  ASSERT_TRUE(Commit(next->save()).ok());
  EXPECT_EQ(Only().phase(), v1::Phase::WRITING);
}

// The call before was interrupted while it waited for other ranks.
TEST_F(RankSavesTest, NextCall_WithAnotherLayout_DoesNotFollowTheFirstOnes) {
  EXPECT_TRUE(Begin(7).ok());
  const RankLayoutPtr other = MakeLayout({Whole("d", DType::kFloat32, {100})}, {});
  session_.AddLayout(other);
  v1::BeginSaveRequest request;
  request.set_trainer_incarnation(trainer_);
  request.set_step(7);
  request.mutable_layout()->set_digest(other->digest);
  EXPECT_TRUE(session_.Ask(request, now_)->pending());
  EXPECT_EQ(Only().phase(), v1::Phase::FAILED);
  EXPECT_TRUE(HasReason(StatusFromProto(Only().error()), Reason::kSaveCancelled));
  ASSERT_TRUE(Order(7, v1::Phase::ABORTED).ok());
  EXPECT_TRUE(session_.Ask(request, now_)->pending());
  EXPECT_EQ(Only().layout_digest(), other->digest);
  EXPECT_EQ(Only().call(), 2u);
}

TEST_F(RankSavesTest, Begin_WithMetrics_TellsThem) {
  const RankLayoutPtr layout = MakeLayout({Whole("d", DType::kFloat32, {100})}, {});
  session_.AddLayout(layout);
  v1::BeginSaveRequest request;
  request.set_trainer_incarnation(trainer_);
  request.set_step(7);
  request.mutable_layout()->set_digest(layout->digest);
  v1::Metric& metric = *request.add_metrics();
  metric.set_name("loss");
  metric.set_value(0.25);
  EXPECT_TRUE(session_.Ask(request, now_)->pending());
  ASSERT_EQ(Only().metrics_size(), 1);
  EXPECT_EQ(Only().metrics(0).name(), "loss");
  EXPECT_EQ(Only().metrics(0).value(), 0.25);
}

TEST_F(RankSavesTest, Cancel_ACallWithoutAnAnswer_FailsThatOfItsStep) {
  EXPECT_TRUE(Begin(7)->pending());
  v1::CancelSaveRequest cancel;
  cancel.set_trainer_incarnation(trainer_);
  cancel.set_step(8);
  EXPECT_TRUE(session_.Ask(cancel, now_).ok());
  EXPECT_EQ(Only().phase(), v1::Phase::PLANNING) << "another step";
  cancel.set_step(7);
  EXPECT_TRUE(session_.Ask(cancel, now_).ok());
  EXPECT_EQ(Only().phase(), v1::Phase::FAILED);
  EXPECT_TRUE(HasReason(StatusFromProto(Only().error()), Reason::kSaveCancelled));
}

TEST_F(RankSavesTest, AnotherStep_UntilItsTimeout_WaitsForTheSlab) {
  const uint64_t first = StartWriting(7);
  EXPECT_TRUE(Begin(8)->pending());
  now_ += absl::Seconds(61);
  session_.OnTick(now_);
  const absl::Status refused = Begin(8).status();
  EXPECT_TRUE(HasReason(refused, Reason::kSaveInProgress));
  EXPECT_NE(refused.message().find("held by the save of step 7 (writing)"), std::string::npos) << refused;
  ASSERT_TRUE(Order(8, v1::Phase::ABORTED).ok());
  EXPECT_TRUE(Begin(9)->pending());
  session_.saves().OnWriteEnded(first, Result());
  ASSERT_TRUE(Order(7, v1::Phase::COMMITTED).ok());
  EXPECT_FALSE(Begin(9)->pending());
}

TEST_F(RankSavesTest, Save_NotStagedInTime_IsLateAndNamesTheRank) {
  EXPECT_TRUE(Begin(7).ok());
  ASSERT_TRUE(Order(7, v1::Phase::STAGING).ok());
  Serve();
  const auto begun = Begin(7);
  session_.OnTick(now_ + absl::Seconds(59));
  EXPECT_EQ(Only().phase(), v1::Phase::STAGING);
  session_.OnTick(now_ + absl::Seconds(60));
  const absl::Status told = Commit(begun->save());
  EXPECT_TRUE(HasReason(told, Reason::kRankLate));
  EXPECT_EQ(MetadataOf(told)["ranks"], "3");
  EXPECT_EQ(MetadataOf(told)["phase"], "staging");
}

}  // namespace
}  // namespace cairn
