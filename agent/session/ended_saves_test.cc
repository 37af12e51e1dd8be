#include "agent/session/ended_saves.h"

#include <gtest/gtest.h>

#include <optional>
#include <utility>

#include "common/status/reason.h"

namespace cairn {
namespace {

constexpr uint64_t kFirst = 71;
constexpr uint64_t kSecond = 72;

class EndedSavesTest : public ::testing::Test {
 protected:
  void Add(uint64_t id, int64_t step, uint64_t trainer, bool committed, bool untold = false) {
    EndedSaves::Ended ended;
    ended.id = id;
    ended.step = step;
    ended.trainer = trainer;
    ended.untold = untold;
    if (!committed) ended.error = MakeError(Reason::kRankLost, "lost");
    ended.checkpoint.set_step(step);
    ended.checkpoint.set_attempt(static_cast<uint32_t>(id));
    saves_.Add(std::move(ended));
  }
  EndedSaves saves_;
};

TEST_F(EndedSavesTest, Error_ThatItsTrainerDoesNotKnow_IsTakenOnce) {
  Add(1, 7, kFirst, false, /*untold=*/true);
  EXPECT_FALSE(saves_.TakeUntold(7, kSecond).has_value());
  EXPECT_FALSE(saves_.TakeUntold(8, kFirst).has_value());
  const std::optional<absl::Status> told = saves_.TakeUntold(7, kFirst);
  ASSERT_TRUE(told.has_value());
  EXPECT_TRUE(HasReason(*told, Reason::kRankLost));
  EXPECT_FALSE(saves_.TakeUntold(7, kFirst).has_value());
}

TEST_F(EndedSavesTest, Error_ThatATrainerHeardByItsSave_IsNotUntold) {
  Add(1, 7, kFirst, false, /*untold=*/true);
  EXPECT_FALSE(saves_.Tell(1, kSecond).has_value());
  EXPECT_TRUE(HasReason(*saves_.Tell(1, kFirst), Reason::kRankLost));
  EXPECT_FALSE(saves_.TakeUntold(7, kFirst).has_value());
}

TEST_F(EndedSavesTest, Committed_AfterSeveralSaves_IsThatOfTheLast) {
  EXPECT_FALSE(saves_.Committed(7));
  Add(1, 7, kFirst, true);
  EXPECT_TRUE(saves_.Committed(7));
  Add(2, 7, kFirst, false);
  EXPECT_FALSE(saves_.Committed(7));
}

TEST_F(EndedSavesTest, Outcome_OfAnotherTrainer_IsToldOnlyIfItIsACommit) {
  Add(1, 7, kFirst, true);
  Add(2, 7, kFirst, false);
  EXPECT_EQ(saves_.Outcome(7, 0, kFirst)->attempt(), 2u);
  EXPECT_EQ(saves_.Outcome(7, 0, kSecond)->attempt(), 1u);
  EXPECT_EQ(saves_.Outcome(7, 1, kFirst)->attempt(), 1u);
  EXPECT_EQ(saves_.Outcome(7, 2, kSecond), nullptr);
  EXPECT_EQ(saves_.Outcome(8, 0, kFirst), nullptr);
}

TEST_F(EndedSavesTest, Saves_BeyondTheSixtyFourth_AreForgottenFromTheOldest) {
  for (uint64_t id = 1; id <= 65; ++id) Add(id, static_cast<int64_t>(id), kFirst, true);
  EXPECT_EQ(saves_.Outcome(1, 0, kFirst), nullptr);
  EXPECT_NE(saves_.Outcome(2, 0, kFirst), nullptr);
}

}  // namespace
}  // namespace cairn
