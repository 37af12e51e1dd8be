// Tests saves that are written while their trainer still stages.
#include <gtest/gtest.h>

#include "agent/session/rank_saves.h"
#include "agent/testing/layouts.h"
#include "agent/testing/session_fixture.h"
#include "common/status/reason.h"
#include "common/status/status_proto.h"

namespace cairn {
namespace {

class EarlySavesTest : public ServedSession {
 protected:
  // The order to write comes while the trainer stages. Returns the save's number.
  uint64_t StageAndOrderToWrite() {
    EXPECT_TRUE(Begin(7)->pending());
    EXPECT_TRUE(Order(7, v1::Phase::STAGING).ok());
    Serve();
    const auto begun = Begin(7);
    EXPECT_TRUE(begun.ok()) << begun.status();
    staging_ = begun->staging();
    EXPECT_NE(staging_, 0u);
    EXPECT_TRUE(Serve().empty()) << "there is no attempt to write for yet";
    EXPECT_TRUE(Order(7, v1::Phase::WRITING).ok());
    return begun->save();
  }
  // Takes the only action, which is this one.
  template <typename T>
  T Take() {
    const std::vector<Action> actions = Serve();
    EXPECT_EQ(actions.size(), 1u);
    EXPECT_TRUE(!actions.empty() && std::holds_alternative<T>(actions[0]));
    return !actions.empty() && std::holds_alternative<T>(actions[0]) ? std::get<T>(actions[0]) : T();
  }
  absl::Status Cancel(uint64_t save) {
    v1::CancelSaveRequest request;
    request.set_trainer_incarnation(trainer_);
    request.set_save(save);
    return session_.Ask(request, now_);
  }

  uint64_t staging_ = 0;
};

TEST_F(EarlySavesTest, OrderToWrite_WhileTheTrainerStages_BeginsAndEndsWithWhatItSaysLast) {
  const uint64_t save = StageAndOrderToWrite();
  const auto write = Take<action::StartWrite>();
  EXPECT_EQ(write.staging, staging_);
  EXPECT_TRUE(write.object_bytes.empty());
  session_.saves().OnWriteProgress(save, 100);
  EXPECT_EQ(Only().phase(), v1::Phase::STAGING) << "its trainer is late, not its agent";
  EXPECT_EQ(Only().bytes_done(), 100u);
  ASSERT_TRUE(Order(7, v1::Phase::WRITING).ok());
  EXPECT_TRUE(Serve().empty());
  ASSERT_TRUE(Commit(save, {77}).ok());
  ASSERT_TRUE(Commit(save, {77}).ok());
  EXPECT_EQ(Take<action::EndStaging>().object_bytes, std::vector<uint64_t>{77});
  EXPECT_EQ(Only().phase(), v1::Phase::WRITING);
  session_.saves().OnWriteEnded(save, Result());
  EXPECT_EQ(Only().phase(), v1::Phase::WRITTEN);
  ASSERT_TRUE(Order(7, v1::Phase::COMMITTED).ok());
  EXPECT_EQ(Wait(7, save)->checkpoint().state(), v1::Phase::COMMITTED);
}

TEST_F(EarlySavesTest, Order_ThatIsThereBeforeThePlacements_IsObeyedWhenTheTrainerHasThem) {
  EXPECT_TRUE(Begin(7)->pending());
  ASSERT_TRUE(Order(7, v1::Phase::WRITING).ok());
  EXPECT_TRUE(Serve().empty()) << "nobody copies yet";
  const auto begun = Begin(7);
  ASSERT_TRUE(begun.ok() && !begun->pending());
  EXPECT_EQ(Take<action::StartWrite>().staging, begun->staging());
}

TEST_F(EarlySavesTest, Write_FailsWhileTheTrainerStages_IsToldToBothSides) {
  const uint64_t save = StageAndOrderToWrite();
  Take<action::StartWrite>();
  session_.saves().OnWriteEnded(save, MakeError(Reason::kNoSpace, "full"));
  EXPECT_EQ(Only().phase(), v1::Phase::FAILED);
  EXPECT_TRUE(Serve().empty());
  EXPECT_TRUE(HasReason(Commit(save), Reason::kNoSpace));
}

TEST_F(EarlySavesTest, Trainer_EndsWhileItIsWritten_FailsWhenItsFilesAreGone) {
  const uint64_t save = StageAndOrderToWrite();
  Take<action::StartWrite>();
  session_.OnTrainerGone(kTrainer, TrainerEnd::kEnded);
  Take<action::StopWrite>();
  EXPECT_EQ(Only().phase(), v1::Phase::STAGING);
  EXPECT_TRUE(session_.saves().HoldsSlab());
  session_.saves().OnWriteEnded(save, MakeError(Reason::kSaveCancelled, "stopped"));
  EXPECT_EQ(Only().phase(), v1::Phase::FAILED);
  EXPECT_TRUE(HasReason(StatusFromProto(Only().error()), Reason::kTrainerLost)) << Only().error().message();
}

TEST_F(EarlySavesTest, Cancel_WhileItIsWritten_FailsWhenItsFilesAreGone) {
  const uint64_t save = StageAndOrderToWrite();
  Take<action::StartWrite>();
  ASSERT_TRUE(Cancel(save).ok());
  Take<action::StopWrite>();
  EXPECT_EQ(Only().phase(), v1::Phase::STAGING);
  EXPECT_TRUE(Begin(8)->pending()) << "the slab is not free";
  session_.saves().OnWriteEnded(save, Result());
  EXPECT_EQ(State().saves(0).phase(), v1::Phase::FAILED);
}

TEST_F(EarlySavesTest, Deadline_PassesWhileItIsWritten_FailsOnce) {
  const uint64_t save = StageAndOrderToWrite();
  Take<action::StartWrite>();
  for (int tick = 0; tick < 3; ++tick) {
    now_ += absl::Minutes(30);
    session_.OnTick(now_);
  }
  Take<action::StopWrite>();
  session_.saves().OnWriteEnded(save, MakeError(Reason::kSaveCancelled, "stopped"));
  EXPECT_EQ(Only().phase(), v1::Phase::FAILED);
  EXPECT_TRUE(HasReason(StatusFromProto(Only().error()), Reason::kRankLate)) << Only().error().message();
}

TEST_F(EarlySavesTest, OrderToAbort_WhileItIsWritten_StopsFirst) {
  const uint64_t save = StageAndOrderToWrite();
  Take<action::StartWrite>();
  ASSERT_TRUE(Order(7, v1::Phase::ABORTING, "p1", 1, MakeError(Reason::kRankLost, "rank 5")).ok());
  Take<action::StopWrite>();
  EXPECT_EQ(Only().phase(), v1::Phase::STAGING);
  EXPECT_TRUE(HasReason(Commit(save), Reason::kRankLost)) << "the trainer hears of it at once";
  session_.saves().OnWriteEnded(save, MakeError(Reason::kSaveCancelled, "stopped"));
  EXPECT_EQ(Only().phase(), v1::Phase::STOPPED);
}

// A trainer whose call was interrupted calls again, with other tensors: nothing of the first state may be in the files.
TEST_F(EarlySavesTest, SecondCall_WhileItIsWritten_BeginsAfterTheWriterHasStopped) {
  const uint64_t save = StageAndOrderToWrite();
  EXPECT_EQ(Take<action::StartWrite>().staging, staging_);
  session_.saves().OnWriteProgress(save, 100);
  EXPECT_TRUE(Begin(7)->pending());
  EXPECT_TRUE(Begin(7)->pending());
  Take<action::StopWrite>();
  session_.saves().OnWriteEnded(save, MakeError(Reason::kSaveCancelled, "stopped"));
  EXPECT_TRUE(Serve().empty()) << "until the trainer is told anew, its word speaks of the first state";
  EXPECT_EQ(Only().bytes_done(), 0u);
  const auto again = Begin(7);
  ASSERT_TRUE(again.ok() && !again->pending());
  EXPECT_EQ(again->save(), save);
  EXPECT_NE(again->staging(), staging_);
  const auto write = Take<action::StartWrite>();
  EXPECT_EQ(write.staging, again->staging());
  EXPECT_EQ(write.attempt, 1u);
  ASSERT_TRUE(Commit(save).ok());
  Take<action::EndStaging>();
  session_.saves().OnWriteEnded(save, Result());
  EXPECT_EQ(Only().phase(), v1::Phase::WRITTEN);
}

TEST_F(EarlySavesTest, AnotherAttempt_IsOrderedWhileItIsWritten_IsWrittenFromTheBeginning) {
  const uint64_t save = StageAndOrderToWrite();
  Take<action::StartWrite>();
  nonce_ = 12;
  ASSERT_TRUE(Order(7, v1::Phase::WRITING, "p1", 2).ok());
  Take<action::StopWrite>();
  session_.saves().OnWriteEnded(save, MakeError(Reason::kSaveCancelled, "stopped"));
  EXPECT_EQ(Take<action::StartWrite>().attempt, 2u);
  EXPECT_EQ(Only().phase(), v1::Phase::STAGING);
}

TEST_F(EarlySavesTest, AnotherPlan_IsOrderedWhileItIsWritten_WaitsForTheEndOfStaging) {
  const uint64_t save = StageAndOrderToWrite();
  Take<action::StartWrite>();
  nonce_ = 12;
  ASSERT_TRUE(Order(7, v1::Phase::WRITING, "p2", 2).ok());
  Take<action::StopWrite>();
  session_.saves().OnWriteEnded(save, MakeError(Reason::kSaveCancelled, "stopped"));
  EXPECT_TRUE(Serve().empty()) << "each item is taken from where the trainer put it";
  ASSERT_TRUE(Commit(save).ok());
  const auto write = Take<action::StartWrite>();
  EXPECT_EQ(write.staging, 0u);
  EXPECT_EQ(write.object_bytes, std::vector<uint64_t>{10});
}

TEST_F(EarlySavesTest, MovedShards_AreWrittenWhenAllIsStaged) {
  plans_["p1"] = testing::MakeMovingPlan(*layout_, 3, {{0, 1}, {3}}, "p1", {}, {{2, 4}}).SerializeAsString();
  const uint64_t save = StageAndOrderToWrite();
  EXPECT_TRUE(Serve().empty());
  ASSERT_TRUE(Commit(save).ok());
  EXPECT_EQ(Take<action::StartWrite>().staging, 0u);
}

}  // namespace
}  // namespace cairn
