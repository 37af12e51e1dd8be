#include "agent/reader/round_ledger.h"

#include <gtest/gtest.h>

#include <vector>

#include "common/status/reason.h"

namespace cairn {
namespace {

using Standing = RoundLedger::Standing;

// A plan whose rounds have these consumers.
v1::ReadPlan Plan(const std::vector<std::vector<uint32_t>>& consumers) {
  v1::ReadPlan plan;
  for (const std::vector<uint32_t>& of_round : consumers) {
    v1::ReadRound* round = plan.add_rounds();
    for (uint32_t consumer : of_round) round->add_consumers(consumer);
  }
  return plan;
}

TEST(RoundLedgerTest, NextToRead_TwoRoundsAreReady_WaitsForARelease) {
  RoundLedger ledger(Plan({{0}, {0}, {0}}));
  EXPECT_EQ(ledger.NextToRead(), 0u);
  ledger.MarkReady(0);
  EXPECT_EQ(ledger.NextToRead(), 1u);
  ledger.MarkReady(1);
  EXPECT_EQ(ledger.NextToRead(), std::nullopt);
  ledger.Release(0, 1);
  EXPECT_EQ(ledger.NextToRead(), 2u);
  ledger.MarkReady(2);
  EXPECT_TRUE(ledger.all_read());
  EXPECT_EQ(ledger.NextToRead(), std::nullopt);
}

TEST(RoundLedgerTest, NextToRead_OneConsumerStillCopies_WaitsForItsRelease) {
  RoundLedger ledger(Plan({{1, 4}, {4}, {1}}));
  ledger.MarkReady(0);
  ledger.MarkReady(1);
  ledger.Release(4, 2);
  EXPECT_EQ(ledger.StandingOf(0), Standing::kReady);  // rank 1 still copies
  EXPECT_EQ(ledger.StandingOf(1), Standing::kGone);
  EXPECT_EQ(ledger.NextToRead(), std::nullopt);
  ledger.Release(1, 1);
  EXPECT_EQ(ledger.StandingOf(0), Standing::kGone);
  EXPECT_EQ(ledger.NextToRead(), 2u);
  EXPECT_EQ(ledger.StandingOf(2), Standing::kNotYet);
}

TEST(RoundLedgerTest, NextToRead_RoundThatNobodyTakes_NeedsNoRelease) {
  RoundLedger ledger(Plan({{}, {}, {}}));
  ledger.MarkReady(0);
  ledger.MarkReady(1);
  EXPECT_EQ(ledger.NextToRead(), 2u);
}

TEST(RoundLedgerTest, Release_OvertakenByALaterOne_IsNotTakenBack) {
  RoundLedger ledger(Plan({{3}, {3}}));
  ledger.MarkReady(0);
  ledger.MarkReady(1);
  ledger.Release(3, 2);
  ledger.Release(3, 0);  // overtaken by the one before
  EXPECT_EQ(ledger.StandingOf(0), Standing::kGone);
  EXPECT_EQ(ledger.StandingOf(1), Standing::kGone);
}

TEST(RoundLedgerTest, Release_RoundThatIsNotReadYet_StaysToBeReleased) {
  RoundLedger ledger(Plan({{3}, {3}}));
  ledger.MarkReady(0);
  ledger.Release(3, 100);
  EXPECT_EQ(ledger.StandingOf(0), Standing::kGone);
  ledger.MarkReady(1);
  EXPECT_EQ(ledger.StandingOf(1), Standing::kReady);
}

TEST(RoundLedgerTest, Release_RankThatTakesNothing_ChangesNothing) {
  RoundLedger ledger(Plan({{3}}));
  ledger.MarkReady(0);
  ledger.Release(9, 1);
  EXPECT_EQ(ledger.StandingOf(0), Standing::kReady);
}

TEST(RoundLedgerTest, CheckConsumer_RoundOrRankThatThePlanLacks_IsRefused) {
  const RoundLedger ledger(Plan({{1, 4}, {4}}));
  EXPECT_TRUE(ledger.CheckConsumer(1, 0).ok());
  EXPECT_TRUE(ledger.CheckConsumer(4, 1).ok());
  EXPECT_TRUE(HasReason(ledger.CheckConsumer(1, 1), Reason::kBadRequest));
  EXPECT_TRUE(HasReason(ledger.CheckConsumer(4, 2), Reason::kBadRequest));
}

TEST(RoundLedgerTest, NextToRead_PlanWithoutRounds_IsNone) {
  const RoundLedger ledger(Plan({}));
  EXPECT_EQ(ledger.NextToRead(), std::nullopt);
  EXPECT_TRUE(ledger.all_read());
}

}  // namespace
}  // namespace cairn
