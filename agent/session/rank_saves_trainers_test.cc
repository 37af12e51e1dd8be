// The saves of several trainers of one rank, one after the other.
#include <gtest/gtest.h>

#include "agent/session/rank_saves.h"
#include "agent/testing/session_fixture.h"
#include "common/status/reason.h"
#include "common/status/status_proto.h"

namespace cairn {
namespace {

using RankSavesTrainersTest = TrainersOfARank;

TEST_F(RankSavesTrainersTest, Outcome_OfAPredecessorsCall_IsNotToldToTheNextTrainer) {
  session_.Attach(kFirst);
  EXPECT_TRUE(Begin(kFirst, 1)->pending());
  session_.OnTrainerGone(kFirst, TrainerEnd::kEnded);
  session_.Attach(kSecond);
  EXPECT_TRUE(Begin(kSecond, 1)->pending()) << "until the first one's call has its outcome";
  Abort(1);
  const auto begun = Begin(kSecond, 1);
  ASSERT_TRUE(begun.ok()) << begun.status();
  EXPECT_TRUE(begun->pending());
  Order(1, v1::Phase::STAGING);
  const auto staged = Begin(kSecond, 1);
  ASSERT_TRUE(staged.ok()) << staged.status();
  EXPECT_TRUE(HasReason(Wait(kSecond, 1, staged->save() - 1).status(), Reason::kNotCommitted));
  EXPECT_FALSE(Commit(kFirst, staged->save()).ok()) << "not attached";
}

TEST_F(RankSavesTrainersTest, AbortedSave_OfAPredecessor_IsNoOutcomeOfTheStep) {
  session_.Attach(kFirst);
  EXPECT_TRUE(Begin(kFirst, 1)->pending());
  session_.OnTrainerGone(kFirst, TrainerEnd::kEnded);
  Abort(1);
  session_.Attach(kSecond);
  EXPECT_TRUE(HasReason(Wait(kSecond, 1).status(), Reason::kNotCommitted));
  Save(kSecond, 1);
  session_.OnTrainerGone(kSecond, TrainerEnd::kEnded);
  session_.Attach(kFirst);
  EXPECT_EQ(Wait(kFirst, 1)->checkpoint().state(), v1::Phase::COMMITTED) << "that concerns everybody";
}

TEST_F(RankSavesTrainersTest, NextCall_OfAnotherTrainer_HasADeadlineOfItsOwn) {
  session_.Attach(kFirst);
  EXPECT_TRUE(Begin(kFirst, 1)->pending());
  session_.Attach(kSecond);
  EXPECT_TRUE(Begin(kSecond, 1, 10)->pending());
  now_ += absl::Seconds(11);
  session_.Attach(kThird);
  EXPECT_TRUE(Begin(kThird, 1, 10)->pending()) << "its ten seconds begin now";
}

TEST_F(RankSavesTrainersTest, CommittedStep_SavedAgain_IsTheCoordinatorsToRefuse) {
  Save(kFirst, 1);
  EXPECT_TRUE(Begin(kFirst, 1)->pending()) << "not even the slab is opened before it has answered";
  Order(1, v1::Phase::ABORTED, MakeError(Reason::kStepCommitted, "committed"));
  EXPECT_TRUE(HasReason(Begin(kFirst, 1).status(), Reason::kStepCommitted));
  // The directory of the step was removed.
  EXPECT_EQ(Save(kFirst, 1), 1u);
}

TEST_F(RankSavesTrainersTest, NumberOfASave_AtAnotherAgentOfTheRank_IsUnknown) {
  const auto begun = Stage(kFirst, 1);
  Session other({.job = "demo", .rank = 0, .world_size = 2, .incarnation = 10'000});
  other.Attach(kFirst);
  v1::CommitStagingRequest request;
  request.set_trainer_incarnation(kFirst);
  request.set_save(begun.save());
  EXPECT_TRUE(HasReason(other.Ask(request, now_), Reason::kBadRequest));
}

}  // namespace
}  // namespace cairn
