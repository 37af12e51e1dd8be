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
    Order(step, v1::SaveOrder::WRITE);
    Order(step, v1::SaveOrder::COMMITTED);
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
  Order(1, v1::SaveOrder::STAGE);
  session_.OnTrainerGone(kFirst, TrainerEnd::kEnded);
  Abort(1);
  session_.Attach(kSecond);
  session_.OnSlab(MakeError(Reason::kMemoryLimit, "too large"));
  serve_slabs_ = true;
  EXPECT_EQ(SlabOf(kSecond, 1), 1u);
}

}  // namespace
}  // namespace cairn
