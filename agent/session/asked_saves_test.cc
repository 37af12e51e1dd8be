// Saves that a trainer asks about, through the session that they are part of.
#include "agent/session/asked_saves.h"

#include <gtest/gtest.h>

#include <vector>

#include "agent/testing/session_fixture.h"
#include "common/status/reason.h"
#include "common/status/status_proto.h"

namespace cairn {
namespace {

class AskedSavesTest : public SucceedingSession {};

TEST_F(AskedSavesTest, UnknownSave_WithItsAttempt_IsAskedForAndItsOutcomeTold) {
  EXPECT_TRUE(HasReason(Wait(7, 0, kTrainer, 0).status(), Reason::kNotCommitted)) << "nothing says which save it is";
  const uint64_t version = session_.version();
  const auto pending = Wait(7, 2);
  ASSERT_TRUE(pending.ok()) << pending.status();
  EXPECT_TRUE(pending->pending());
  EXPECT_EQ(pending->attempt(), 2u);
  EXPECT_GT(session_.version(), version) << "the coordinator is asked at once";
  ASSERT_EQ(State().saves_size(), 1);
  const v1::SaveState asked = State().saves(0);
  EXPECT_EQ(asked.phase(), v1::Phase::ASKED);
  EXPECT_EQ(asked.attempt(), 2u);
  EXPECT_TRUE(Wait(7, 2)->pending());
  EXPECT_EQ(State().saves_size(), 1) << "asked once";

  v1::SaveOrder wait = Answer(asked, v1::Phase::WAITING);
  *wait.mutable_stalled() = StatusToProto(MakeError(Reason::kStorageStalled, "storage hangs"));
  Order({wait});
  EXPECT_TRUE(HasReason(StatusFromProto(Wait(7, 2)->stalled()), Reason::kStorageStalled));
  v1::SaveOrder other = Answer(asked, v1::Phase::ABORTED);
  other.set_attempt(1);
  Order({other});
  EXPECT_TRUE(Wait(7, 2)->pending()) << "of another attempt";
  v1::SaveOrder aborted = Answer(asked, v1::Phase::ABORTED);
  *aborted.mutable_error() = StatusToProto(MakeError(Reason::kRankLost, "rank 3 was lost", {{"ranks", "3"}}));
  Order({aborted});
  EXPECT_EQ(State().saves_size(), 0) << "it need not be asked any more";
  const auto told = Wait(7, 2);
  ASSERT_TRUE(told.ok() && told->has_checkpoint());
  EXPECT_EQ(told->checkpoint().state(), v1::Phase::ABORTED);
  EXPECT_EQ(told->checkpoint().attempt(), 2u);
  const absl::Status error = StatusFromProto(told->checkpoint().error());
  EXPECT_TRUE(HasReason(error, Reason::kRankLost));
  EXPECT_EQ(MetadataOf(error)["ranks"], "3");
}

TEST_F(AskedSavesTest, UnknownSave_WithoutAnAttempt_IsAskedForByItsNumber) {
  const uint64_t version = session_.version();
  const auto pending = Wait(7, 0);
  ASSERT_TRUE(pending.ok()) << pending.status();
  EXPECT_TRUE(pending->pending());
  EXPECT_GT(session_.version(), version) << "the coordinator is asked at once";
  ASSERT_EQ(State().saves_size(), 1);
  const v1::SaveState asked = State().saves(0);
  EXPECT_EQ(asked.phase(), v1::Phase::ASKED);
  EXPECT_EQ(asked.attempt(), 0u);
  EXPECT_EQ(asked.save(), 12345u);
  Order({Answer(asked, v1::Phase::WAITING)});
  EXPECT_TRUE(Wait(7, 0)->pending());
  v1::SaveOrder aborted = Answer(asked, v1::Phase::ABORTED);
  aborted.set_attempt(3);
  *aborted.mutable_error() = StatusToProto(MakeError(Reason::kNoSpace, "rank 1: no space"));
  Order({aborted});
  const auto told = Wait(7, 0);
  ASSERT_TRUE(told.ok() && told->has_checkpoint());
  EXPECT_EQ(told->checkpoint().state(), v1::Phase::ABORTED);
  EXPECT_EQ(told->checkpoint().attempt(), 3u);
  EXPECT_TRUE(HasReason(StatusFromProto(told->checkpoint().error()), Reason::kNoSpace));

  EXPECT_TRUE(Wait(8, 0)->pending());
  Order({Answer(State().saves(0), v1::Phase::UNKNOWN)});
  EXPECT_EQ(State().saves_size(), 0) << "it is not asked for ever";
  EXPECT_TRUE(HasReason(Wait(8, 0).status(), Reason::kNotCommitted));
}

TEST_F(AskedSavesTest, AskedSave_BesideASaveOfThatStep_IsNoneOfTheTrainers) {
  EXPECT_TRUE(Wait(7, 1)->pending());
  EXPECT_TRUE(Begin(7)->pending());
  v1::SaveState begun, asked;
  for (const v1::SaveState& save : Saves()) (save.phase() == v1::Phase::ASKED ? asked : begun) = save;
  EXPECT_EQ(begun.phase(), v1::Phase::PLANNING);
  ASSERT_NE(begun.call(), asked.call());
  Order({Answer(asked, v1::Phase::COMMITTED), Answer(begun, v1::Phase::WAITING)});
  EXPECT_EQ(Wait(7, 1)->checkpoint().state(), v1::Phase::COMMITTED);
  EXPECT_TRUE(Begin(7)->pending()) << "this one has no outcome";
  EXPECT_FALSE(session_.saves().HoldsStaged());
}

TEST_F(AskedSavesTest, AskedSaves_OfOneTrainer_AreBoundedAndEndWithIt) {
  for (uint32_t attempt = 1; attempt <= 1000; ++attempt) EXPECT_TRUE(Wait(7, attempt)->pending());
  EXPECT_LE(State().saves_size(), 64);
  std::vector<v1::SaveOrder> answers;
  for (const v1::SaveState& asked : Saves()) answers.push_back(Answer(asked, v1::Phase::COMMITTED));
  Order(answers);
  // Outcomes that nobody fetches make room for others.
  EXPECT_TRUE(Wait(7, 1000)->pending());
  ASSERT_EQ(State().saves_size(), 1);
  EXPECT_EQ(State().saves(0).attempt(), 1000u);
  session_.OnTrainerGone(kTrainer, TrainerEnd::kEnded);
  EXPECT_EQ(State().saves_size(), 0);
}

}  // namespace
}  // namespace cairn
