#include "agent/runtime/link_recovery.h"

#include <gtest/gtest.h>

#include "common/status/reason.h"

namespace cairn {
namespace {

class LinkRecoveryTest : public testing::Test {
 protected:
  LinkRecovery::Next Fail(Reason reason, bool registered = true) {
    return recovery_.OnFailed(MakeError(reason, "it fails"), registered, now_);
  }

  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
  LinkRecovery recovery_{absl::Seconds(20)};
};

TEST_F(LinkRecoveryTest, OnFailed_AgainAndAgain_PausesLongerUpToALimit) {
  EXPECT_EQ(Fail(Reason::kCoordinatorUnreachable).pause, link_limits::kFirstPause);
  EXPECT_EQ(Fail(Reason::kCoordinatorUnreachable).pause, 2 * link_limits::kFirstPause);
  for (int i = 0; i < 20; ++i) Fail(Reason::kCoordinatorUnreachable);
  EXPECT_EQ(Fail(Reason::kCoordinatorUnreachable).pause, link_limits::kLongestPause);
  recovery_.OnAnswered();
  EXPECT_EQ(Fail(Reason::kCoordinatorUnreachable).pause, link_limits::kFirstPause);
}

TEST_F(LinkRecoveryTest, OnFailed_TheSameErrorAgain_IsToldOnce) {
  EXPECT_FALSE(recovery_.OnAnswered()) << "nothing was told";
  EXPECT_TRUE(Fail(Reason::kCoordinatorUnreachable).tell);
  EXPECT_FALSE(Fail(Reason::kCoordinatorUnreachable).tell);
  EXPECT_TRUE(recovery_.OnAnswered());
  EXPECT_FALSE(recovery_.OnAnswered());
  EXPECT_TRUE(Fail(Reason::kCoordinatorUnreachable).tell);
}

TEST_F(LinkRecoveryTest, OnFailed_TheCoordinatorCannotBeReached_TriesAnotherConnection) {
  EXPECT_TRUE(Fail(Reason::kCoordinatorUnreachable).reconnect);
  EXPECT_FALSE(Fail(Reason::kOverloaded).reconnect);
}

TEST_F(LinkRecoveryTest, OnFailed_TheCoordinatorForgotTheAgent_RegistersInItsTurnWithoutAPause) {
  for (const Reason reason : {Reason::kNotRegistered, Reason::kStaleEpoch}) {
    const auto next = Fail(reason);
    EXPECT_TRUE(next.register_again);
    EXPECT_TRUE(next.take_turn);
    EXPECT_EQ(next.pause, absl::ZeroDuration());
  }
}

TEST_F(LinkRecoveryTest, OnFailed_ARegistrationIsRefusedAsUnregistered_Pauses) {
  const auto next = Fail(Reason::kStaleEpoch, /*registered=*/false);
  EXPECT_TRUE(next.register_again);
  EXPECT_FALSE(next.take_turn);
  EXPECT_GT(next.pause, absl::ZeroDuration());
}

TEST_F(LinkRecoveryTest, OnFailed_ARestartingCoordinatorIsAwaited_TakesATurnOnlyAfterItAnsweredOnce) {
  EXPECT_FALSE(Fail(Reason::kCoordinatorUnreachable, /*registered=*/false).take_turn) << "agents start one by one";
  recovery_.OnAnswered();
  EXPECT_TRUE(Fail(Reason::kCoordinatorUnreachable, /*registered=*/false).take_turn);
  EXPECT_FALSE(Fail(Reason::kCoordinatorUnreachable, /*registered=*/true).take_turn);
}

// Whoever takes the address of a coordinator that is down must not end the agents.
TEST_F(LinkRecoveryTest, OnFailed_SomethingUnprovenAtTheAddressLater_GoesOn) {
  recovery_.OnAnswered();
  for (int i = 0; i < 100; ++i) {
    const auto next = Fail(Reason::kBadToken);
    EXPECT_FALSE(next.give_up);
    EXPECT_TRUE(next.reconnect);
    now_ += absl::Seconds(1);
  }
}

TEST_F(LinkRecoveryTest, OnFailed_AFinalRefusal_GivesUpAtOnce) {
  for (const Reason reason : {Reason::kStaleIncarnation, Reason::kBadJobName, Reason::kRankOutOfRange}) {
    EXPECT_TRUE(Fail(reason).give_up);
  }
}

TEST_F(LinkRecoveryTest, OnFailed_AConflictThatLasts_GivesUpAfterTheTimeout) {
  for (const Reason reason :
       {Reason::kRankConflict, Reason::kWorldSizeMismatch, Reason::kRootMismatch, Reason::kBadToken}) {
    EXPECT_FALSE(Fail(reason, false).give_up);
    now_ += absl::Seconds(19);
    EXPECT_FALSE(Fail(reason, false).give_up);
    now_ += absl::Seconds(1);
    EXPECT_TRUE(Fail(reason, false).give_up);
    Fail(Reason::kCoordinatorUnreachable, false);
  }
}

TEST_F(LinkRecoveryTest, OnFailed_AConflictAfterAnotherError_IsTimedAnew) {
  Fail(Reason::kRankConflict, false);
  now_ += absl::Seconds(19);
  Fail(Reason::kCoordinatorUnreachable, false);
  now_ += absl::Seconds(1);
  EXPECT_FALSE(Fail(Reason::kRankConflict, false).give_up);
}

}  // namespace
}  // namespace cairn
