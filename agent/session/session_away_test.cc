// Tests what a trainer is told while its agent has no word with the coordinator.
#include <gtest/gtest.h>

#include <vector>

#include "absl/strings/str_cat.h"
#include "agent/testing/session_fixture.h"
#include "common/status/reason.h"
#include "common/status/status_proto.h"

namespace cairn {
namespace {

class SessionAwayTest : public SucceedingSession {
 protected:
  void Fail(Reason reason) { session_.OnLinkFailed(MakeError(reason, "the link's words"), now_); }
  void Silence(absl::Time since) {
    session_.OnLinkSilent(MakeError(Reason::kCoordinatorUnreachable, "no answer"), since, now_);
  }
};

TEST_F(SessionAwayTest, LinkTrouble_UntilOrdersCome_IsToldInEveryPendingAnswer) {
  EXPECT_FALSE(Begin(1)->has_stalled());
  Fail(Reason::kCoordinatorUnreachable);
  EXPECT_FALSE(Begin(1)->has_stalled()) << "it may have been a moment";
  now_ += absl::Seconds(12);
  Fail(Reason::kCoordinatorUnreachable);
  v1::PrepareRequest prepare;
  prepare.set_trainer_incarnation(kTrainer);
  prepare.mutable_layout()->set_digest(layout_->digest);
  v1::BeginLoadRequest load;
  load.set_trainer_incarnation(kTrainer);
  load.set_number(1);
  load.mutable_layout()->set_digest(layout_->digest);
  const auto all = [&] {
    return std::vector<google::rpc::Status>{Begin(1)->stalled(), session_.Ask(prepare, now_)->stalled(),
                                            session_.Ask(load, now_)->stalled(), Wait(7, 1)->stalled()};
  };
  for (const auto& stalled : all()) {
    const absl::Status status = StatusFromProto(stalled);
    EXPECT_TRUE(HasReason(status, Reason::kCoordinatorUnreachable)) << status;
    EXPECT_NE(status.message().find("for 12s"), std::string::npos) << status;
    EXPECT_NE(status.message().find("the link's words"), std::string::npos) << status;
    EXPECT_EQ(MetadataOf(status)["rank"], "3");
  }
  Order();
  for (const auto& stalled : all()) EXPECT_EQ(stalled.code(), 0) << "orders have come";
}

TEST_F(SessionAwayTest, Refusal_WhileASaveWaits_IsToldAtOnceAndIsItsError) {
  EXPECT_TRUE(Begin(1, 2)->pending());
  Fail(Reason::kRootMismatch);
  EXPECT_TRUE(HasReason(StatusFromProto(Begin(1, 2)->stalled()), Reason::kRootMismatch));
  now_ += absl::Seconds(2);
  session_.OnTick(now_);
  const absl::Status error = Begin(1).status();
  EXPECT_TRUE(HasReason(error, Reason::kRootMismatch)) << error;
  EXPECT_EQ(MetadataOf(error)["step"], "1");
}

TEST_F(SessionAwayTest, Silence_OfTheCoordinator_IsToldAtOnceSinceTheCallBegan) {
  EXPECT_TRUE(Begin(1, 2)->pending());
  const absl::Time since = now_;
  now_ += absl::Seconds(2);
  Silence(since);
  const absl::Status stalled = StatusFromProto(Begin(1, 2)->stalled());
  EXPECT_TRUE(HasReason(stalled, Reason::kCoordinatorUnreachable)) << stalled;
  EXPECT_NE(stalled.message().find("for 2s: no answer"), std::string::npos) << stalled;
  Order();
  EXPECT_FALSE(Begin(1, 2)->has_stalled()) << "the answer came";
}

TEST_F(SessionAwayTest, Silence_WhenASaveIsLate_IsItsErrorAndBlamesNoRank) {
  EXPECT_TRUE(Begin(1, 2)->pending());
  Silence(now_);
  now_ += absl::Seconds(2);
  session_.OnTick(now_);
  const absl::Status error = Begin(1).status();
  EXPECT_TRUE(HasReason(error, Reason::kCoordinatorUnreachable)) << error;
  EXPECT_EQ(MetadataOf(error)["phase"], "planning");
}

// The coordinator was asked who is late, and fell silent over it.
TEST_F(SessionAwayTest, Silence_WhileTheLateRanksAreToBeNamed_IsTheErrorWhenNobodyNamesThem) {
  EXPECT_TRUE(Begin(1, 2)->pending());
  now_ += absl::Seconds(2);
  session_.OnTick(now_);
  EXPECT_TRUE(Begin(1, 2)->pending()) << "the coordinator may still name them";
  Silence(now_);
  now_ += absl::Seconds(3);
  const absl::Status error = Begin(1).status();
  EXPECT_TRUE(HasReason(error, Reason::kCoordinatorUnreachable)) << error;
}

TEST_F(SessionAwayTest, FailedSaves_ThatNobodyHearsOf_AreBounded) {
  Fail(Reason::kCoordinatorUnreachable);
  Fail(Reason::kCoordinatorUnreachable);
  absl::Status last;
  for (int64_t step = 1; step <= 200; ++step) {
    last = Begin(step, 1).status();
    now_ += absl::Seconds(1);
    session_.OnTick(now_);
    if (last.ok()) last = Begin(step, 1).status();
    ASSERT_TRUE(HasReason(last, Reason::kCoordinatorUnreachable)) << last;
  }
  EXPECT_LE(State().saves_size(), 16);
  // It comes back, and gives them their outcomes.
  std::vector<v1::SaveOrder> orders;
  for (const v1::SaveState& save : Saves()) orders.push_back(Answer(save, v1::Phase::ABORTED));
  Order(orders);
  EXPECT_EQ(State().saves_size(), 0);
  EXPECT_TRUE(Begin(300)->pending());
}

}  // namespace
}  // namespace cairn
