// Who gets the slab, through the session that asks for it.
#include "agent/session/rank_slab.h"

#include <gtest/gtest.h>

#include "agent/testing/session_fixture.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

using RankSlabTest = TrainersOfARank;

TEST_F(RankSlabTest, Trainer_AlsoAfterACopyThatCameToNothing_UsesItsSlabAgain) {
  EXPECT_EQ(Save(kFirst, 1), 1u);
  const auto cancelled = Stage(kFirst, 2);
  EXPECT_EQ(cancelled.slab().descriptor_id(), 1u);
  ASSERT_TRUE(Cancel(kFirst, cancelled.save()).ok());
  Abort(2);
  const auto late = Stage(kFirst, 3);
  now_ += absl::Seconds(61);
  session_.OnTick(now_);
  EXPECT_TRUE(HasReason(Commit(kFirst, late.save()), Reason::kRankLate));
  Abort(3);
  EXPECT_EQ(Save(kFirst, 4), 1u);
}

TEST_F(RankSlabTest, Slab_ThatAnotherTrainerMayWrite_IsGivenToNobodyElse) {
  // However its saves ended: staged and committed, late, still staging.
  EXPECT_EQ(Save(kFirst, 1), 1u);
  EXPECT_EQ(Save(kSecond, 2), 2u) << "the first lives";
  const auto late = Stage(kSecond, 3);
  now_ += absl::Seconds(61);
  session_.OnTick(now_);
  Abort(3);
  EXPECT_EQ(SlabOf(kFirst, 4), 3u) << "the second has not even copied yet";
  session_.OnTrainerGone(kFirst, TrainerEnd::kDetached);
  Abort(4);
  EXPECT_EQ(SlabOf(kSecond, 5), 4u) << "the first did not say that it has unmapped it";
  EXPECT_FALSE(Commit(kSecond, late.save()).ok());
}

TEST_F(RankSlabTest, Slab_WhoseWriterHasUnmappedItOrIsDead_IsFree) {
  EXPECT_EQ(Save(kFirst, 1), 1u);
  session_.OnTrainerGone(kFirst, TrainerEnd::kUnmapped);
  EXPECT_EQ(SlabOf(kSecond, 2), 1u);
  session_.OnTrainerGone(kSecond, TrainerEnd::kEnded);
  Abort(2);
  EXPECT_EQ(SlabOf(kFirst, 3), 1u) << "killed while it copied, and known to have ended";
}

TEST_F(RankSlabTest, Writer_ThatWasReplaced_FreesItsSlabByItsLaterEnd) {
  EXPECT_EQ(Save(kFirst, 1), 1u);
  session_.Attach(kSecond);
  session_.OnTrainerGone(kFirst, TrainerEnd::kDetached);
  session_.OnTrainerGone(kFirst, TrainerEnd::kEnded);
  EXPECT_TRUE(session_.attached_trainer() == kSecond);
  EXPECT_EQ(SlabOf(kSecond, 2), 1u);
}

TEST_F(RankSlabTest, Trainer_ThatCopiesNothing_GetsNoSlabSoItsSuccessorMayHaveIt) {
  plan_ = "nothing";
  int64_t step = 0;
  for (uint64_t trainer : {kFirst, kSecond}) {
    const auto begun = Stage(trainer, ++step);
    EXPECT_FALSE(begun.has_slab());
    ASSERT_TRUE(Commit(trainer, begun.save()).ok());
    Order(step, v1::Phase::WRITING);
    Order(step, v1::Phase::COMMITTED);
  }
  EXPECT_EQ(slabs_, 1u);
}

TEST_F(RankSlabTest, Slab_ThatWasLent_IsWrittenAgainOnlyByWhoHasItMapped) {
  plan_ = "lending";
  EXPECT_EQ(Save(kFirst, 1), 1u);
  EXPECT_EQ(Save(kFirst, 2), 1u);
  session_.OnTrainerGone(kFirst, TrainerEnd::kUnmapped);
  EXPECT_EQ(Save(kSecond, 3), 2u) << "nobody can map the first one to write any more";
  session_.OnTrainerGone(kSecond, TrainerEnd::kDetached);
  EXPECT_EQ(Save(kSecond, 4), 3u) << "it came back, perhaps without its mapping";
  const auto begun = Stage(kSecond, 5);
  EXPECT_EQ(begun.slab().descriptor_id(), 3u);
  ASSERT_TRUE(Cancel(kSecond, begun.save()).ok());
  Abort(5);
  EXPECT_EQ(SlabOf(kSecond, 6), 4u) << "it gave up, perhaps for want of the mapping";
}

TEST_F(RankSlabTest, WantOfMemory_AfterTheAskersEnd_IsToldToNobody) {
  serve_slabs_ = false;
  session_.Attach(kFirst);
  EXPECT_TRUE(Begin(kFirst, 1)->pending());
  Order(1, v1::Phase::STAGING);
  session_.OnTrainerGone(kFirst, TrainerEnd::kEnded);
  Abort(1);
  session_.Attach(kSecond);
  session_.OnSlab(MakeError(Reason::kMemoryLimit, "too large"));
  serve_slabs_ = true;
  EXPECT_EQ(SlabOf(kSecond, 1), 1u);
}

// These tests are about what loads may copy out of it.

TEST_F(RankSlabTest, Load_TrainerRestarted_CopiesWhatTheSlabHoldsOfTheCommittedStep) {
  Save(kFirst, 1);
  session_.OnTrainerGone(kFirst, TrainerEnd::kEnded);
  const v1::LoadState told = BeginLoad(kSecond);
  EXPECT_EQ(told.kept_step(), 1);
  EXPECT_EQ(told.kept_attempt(), 1u);
  const action::StartRead read = Read(FileOf(1));
  ASSERT_NE(read.kept, nullptr);
  EXPECT_EQ(read.kept->slab, 1u);
  EXPECT_EQ(read.kept->OffsetOf(FileOf(1)), 0u);
}

TEST_F(RankSlabTest, Load_SameTrainer_CopiesToo) {
  Save(kFirst, 1);
  EXPECT_NE(Load(kFirst, FileOf(1)).kept, nullptr) << "its copies ended before it said that it has staged";
}

TEST_F(RankSlabTest, Load_AnotherTrainerMayStillWrite_ReadsFilesAndSaysWhy) {
  Save(kFirst, 1);
  EXPECT_EQ(BeginLoad(kSecond).kept_attempt(), 0u) << "the coordinator must not count on it";
  const action::StartRead replaced = Read(FileOf(1));
  EXPECT_EQ(replaced.kept, nullptr);
  EXPECT_EQ(replaced.kept_refusal, "an earlier trainer may still write into the staging buffer");
  session_.OnTrainerGone(kFirst, TrainerEnd::kDetached);
  EXPECT_EQ(Load(kSecond, FileOf(1)).kept, nullptr) << "it did not say that it has unmapped it";
  session_.OnTrainerGone(kFirst, TrainerEnd::kEnded);
  EXPECT_NE(Load(kSecond, FileOf(1)).kept, nullptr);
}

TEST_F(RankSlabTest, Load_TrainerWasToldOfTheSlabSince_ReadsFiles) {
  Save(kFirst, 1);
  const auto begun = Stage(kFirst, 2);
  ASSERT_EQ(begun.slab().descriptor_id(), 1u);
  ASSERT_TRUE(Cancel(kFirst, begun.save()).ok());
  Abort(2);
  EXPECT_EQ(BeginLoad(kFirst).kept_attempt(), 0u);
  EXPECT_EQ(Read(FileOf(1)).kept, nullptr);
}

TEST_F(RankSlabTest, Load_SaveThatWasNotCommitted_ReadsFiles) {
  const auto begun = Stage(kFirst, 1);
  ASSERT_TRUE(Commit(kFirst, begun.save()).ok());
  Order(1, v1::Phase::WRITING);
  EXPECT_EQ(Load(kFirst, FileOf(1)).kept, nullptr) << "it is written, but there is no outcome";
  Abort(1);
  EXPECT_EQ(Load(kFirst, FileOf(1)).kept, nullptr);
}

TEST_F(RankSlabTest, Load_OtherStepOrAttempt_ReadsFiles) {
  Save(kFirst, 1);
  EXPECT_EQ(Load(kFirst, FileOf(2)).kept, nullptr);
  EXPECT_EQ(Load(kFirst, FileOf(1, 2)).kept, nullptr);
  Save(kFirst, 2);
  EXPECT_EQ(Load(kFirst, FileOf(1)).kept, nullptr) << "the slab was used again";
  EXPECT_NE(Load(kFirst, FileOf(2)).kept, nullptr);
}

TEST_F(RankSlabTest, Load_FilesWereWrittenByAnotherPlanThanTheyWereStagedBy_ReadsFiles) {
  const auto begun = Stage(kFirst, 1);
  ASSERT_TRUE(Commit(kFirst, begun.save()).ok());
  plan_ = "other";
  Order(1, v1::Phase::WRITING);
  Order(1, v1::Phase::COMMITTED);
  EXPECT_EQ(Load(kFirst, FileOf(1)).kept, nullptr);
}

TEST_F(RankSlabTest, Load_SaveOpensTheSlabBeforeItReads_ReadsFilesAndSaysWhy) {
  Save(kFirst, 1);
  EXPECT_EQ(BeginLoad(kFirst).kept_attempt(), 1u);
  Stage(kFirst, 2);
  EXPECT_EQ(session_.BuildRequest(std::nullopt).state().loads(0).kept_attempt(), 1u)
      << "another coordinator makes the same plan";
  const action::StartRead read = Read(FileOf(1));
  EXPECT_EQ(read.kept, nullptr);
  EXPECT_EQ(read.kept_refusal, "a save has begun to use the staging buffer");
}

TEST_F(RankSlabTest, Save_LoadCopiesFromTheSlab_IsToldOfItWhenTheLoadHasStopped) {
  Save(kFirst, 1);
  ASSERT_NE(Load(kFirst, FileOf(1)).kept, nullptr);
  serve_give_up_ = false;
  EXPECT_TRUE(Begin(kFirst, 2)->pending());
  Order(2, v1::Phase::STAGING);
  EXPECT_EQ(given_up_, 1);
  EXPECT_TRUE(Begin(kFirst, 2)->pending()) << "the load may be copying";
  session_.OnTick(now_);
  EXPECT_EQ(given_up_, 1) << "asked once";
  session_.OnSlabGivenUp();
  EXPECT_EQ(Begin(kFirst, 2)->slab().descriptor_id(), 1u);
}

TEST_F(RankSlabTest, Save_LoadHasReadAllOrIsOver_IsToldOfTheSlabAtOnce) {
  Save(kFirst, 1);
  ASSERT_NE(Load(kFirst, FileOf(1)).kept, nullptr);
  session_.loads().OnProgress(loads_, {.all_read = true});
  serve_give_up_ = false;
  EXPECT_EQ(SlabOf(kFirst, 2), 1u);
  Abort(2);
  Save(kFirst, 3);
  ASSERT_NE(Load(kFirst, FileOf(3)).kept, nullptr);
  session_.loads().OnFailed(loads_, MakeError(Reason::kStorageError, "a disk"));
  session_.loads().OnStopped(loads_);
  EXPECT_EQ(SlabOf(kFirst, 4), 1u);
  EXPECT_EQ(given_up_, 0);
}

TEST_F(RankSlabTest, Slab_MadeAnewWhileALoadCopies_IsGivenUpBefore) {
  Save(kFirst, 1);
  ASSERT_NE(Load(kFirst, FileOf(1)).kept, nullptr);
  session_.Attach(kSecond);
  EXPECT_TRUE(Begin(kSecond, 2)->pending());
  session_.BuildRequest(std::nullopt);
  v1::SynchronizeAgentResponse response;
  response.set_coordinator_epoch(5);
  v1::SaveOrder& order = *response.add_saves();
  order.set_step(2);
  order.set_phase(v1::Phase::STAGING);
  order.set_plan_digest("p");
  order.set_attempt(1);
  ASSERT_TRUE(session_.OnOrders(response).ok());
  std::vector<size_t> order_of;
  for (const Action& action : session_.TakeActions()) {
    if (std::holds_alternative<action::GiveUpSlab>(action) || std::holds_alternative<action::MakeSlab>(action)) {
      order_of.push_back(action.index());
    }
  }
  EXPECT_EQ(order_of, (std::vector<size_t>{Action(action::GiveUpSlab()).index(), Action(action::MakeSlab()).index()}));
}

}  // namespace
}  // namespace cairn
