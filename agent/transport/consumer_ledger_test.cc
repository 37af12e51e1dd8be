#include "agent/transport/consumer_ledger.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace cairn {
namespace {

constexpr uint64_t kWindowBytes = uint64_t{8} << 20;

// A plan that takes one copy from each (source rank, round).
v1::ReadPlan Plan(const std::vector<std::pair<uint32_t, uint32_t>>& copies) {
  v1::ReadPlan plan;
  for (const auto& [source, round] : copies) {
    v1::Copy* copy = plan.add_copies();
    copy->set_source_rank(source);
    copy->set_round(round);
  }
  return plan;
}

// Returns what the trainer gets, by number.
std::vector<uint64_t> Numbers(const ConsumerLedger::Received& received) {
  std::vector<uint64_t> numbers;
  for (const v1::LoadBatch& batch : received.batches) numbers.push_back(batch.batch());
  return numbers;
}

TEST(ConsumerLedgerTest, NextRound_SeveralSources_AsksEachForItsRoundsInOrder) {
  ConsumerLedger ledger(Plan({{7, 0}, {2, 3}, {7, 4}, {2, 1}, {7, 4}}), kWindowBytes);
  ASSERT_EQ(ledger.sources(), 2u);
  EXPECT_EQ(ledger.rank(0), 7u);
  EXPECT_EQ(ledger.rank(1), 2u);
  EXPECT_EQ(ledger.rounds(0), 2u);
  EXPECT_EQ(ledger.NextRound(0), 0u);
  EXPECT_EQ(ledger.NextRound(1), 1u);
  EXPECT_EQ(ledger.TakeRound(0, 0)->size(), 1u);
  EXPECT_EQ(ledger.NextRound(0), 4u);
  EXPECT_EQ(ledger.NextRound(1), 1u);  // of its own pace
  EXPECT_EQ(ledger.TakeRound(0, 4)->size(), 2u);
  EXPECT_EQ(ledger.NextRound(0), std::nullopt);
}

TEST(ConsumerLedgerTest, TakeRound_RoundThatWasNotAskedFor_IsNotTaken) {
  ConsumerLedger ledger(Plan({{1, 0}, {1, 2}}), kWindowBytes);
  EXPECT_FALSE(ledger.TakeRound(0, 2).has_value());
  EXPECT_FALSE(ledger.TakeRound(0, 1).has_value());
  EXPECT_TRUE(ledger.TakeRound(0, 0).has_value());
  EXPECT_FALSE(ledger.TakeRound(0, 0).has_value());  // again
  EXPECT_TRUE(ledger.TakeRound(0, 2).has_value());
  EXPECT_FALSE(ledger.TakeRound(0, 2).has_value());
}

TEST(ConsumerLedgerTest, ReleasedBelow_BatchesReleasedOutOfOrder_KeepsTheRoundsThatAreCopied) {
  ConsumerLedger ledger(Plan({{1, 0}, {1, 2}, {1, 5}}), kWindowBytes);
  EXPECT_EQ(ledger.ReleasedBelow(0), 0u);
  ledger.TakeRound(0, 0);
  const uint64_t first = ledger.AddMapped(0, 0, {});
  ledger.TakeRound(0, 2);
  const uint64_t second = ledger.AddMapped(0, 2, {});
  EXPECT_EQ(ledger.ReleasedBelow(0), 0u);
  EXPECT_EQ(ledger.Release(second), 0u);
  EXPECT_EQ(ledger.ReleasedBelow(0), 0u);  // round 0 is still being copied
  EXPECT_EQ(ledger.Release(first), 0u);
  EXPECT_EQ(ledger.ReleasedBelow(0), 5u);  // nothing before the round that is awaited
  ledger.TakeRound(0, 5);
  EXPECT_EQ(ledger.ReleasedBelow(0), 5u);
  ledger.Release(ledger.AddMapped(0, 5, {}));
  EXPECT_EQ(ledger.ReleasedBelow(0), 6u);
}

TEST(ConsumerLedgerTest, ReleasedBelow_FetchedRound_KeepsItUntilItsLastWindowIsFilled) {
  ConsumerLedger ledger(Plan({{1, 0}}), kWindowBytes);
  ledger.TakeRound(0, 0);
  ledger.ExpectWindows(0, 0, 2);
  ledger.TakeRoom(10);
  const ConsumerLedger::Filled first = ledger.AddFilled(0, 0, 10, {});
  EXPECT_FALSE(first.round_released);
  // The trainer is done with the window, but the rest of the round is still to be fetched.
  EXPECT_EQ(ledger.Release(first.batch), std::nullopt);
  EXPECT_EQ(ledger.ReleasedBelow(0), 0u);
  ledger.TakeRoom(10);
  EXPECT_TRUE(ledger.AddFilled(0, 0, 10, {}).round_released);
  EXPECT_EQ(ledger.ReleasedBelow(0), 1u);  // before the trainer has copied it
}

TEST(ConsumerLedgerTest, HasRoom_WindowsAreOut_StaysWithinTheirBytesButAllowsOne) {
  ConsumerLedger ledger(Plan({{1, 0}, {2, 0}}), kWindowBytes);
  EXPECT_EQ(ledger.largest_window(), kWindowBytes / 2);
  EXPECT_TRUE(ledger.HasRoom(100 * kWindowBytes));
  ledger.TakeRound(0, 0);
  ledger.ExpectWindows(0, 0, 3);
  ledger.TakeRoom(kWindowBytes / 2);
  EXPECT_TRUE(ledger.HasRoom(kWindowBytes / 2));
  EXPECT_FALSE(ledger.HasRoom(kWindowBytes / 2 + 1));
  ledger.TakeRoom(kWindowBytes / 2);
  EXPECT_FALSE(ledger.HasRoom(1));
  const uint64_t batch = ledger.AddFilled(0, 0, kWindowBytes / 2, {}).batch;
  EXPECT_FALSE(ledger.HasRoom(1));  // until the trainer has copied it
  ledger.Release(batch);
  EXPECT_TRUE(ledger.HasRoom(kWindowBytes / 2));
}

TEST(ConsumerLedgerTest, LargestWindow_NoBytesAreAllowed_IsAMebibyte) {
  EXPECT_EQ(ConsumerLedger(Plan({}), 0).largest_window(), uint64_t{1} << 20);
}

TEST(ConsumerLedgerTest, AddFilled_EmptyWindow_CountsAsAWindow) {
  ConsumerLedger ledger(Plan({{1, 0}}), kWindowBytes);
  ledger.TakeRound(0, 0);
  ledger.ExpectWindows(0, 0, 1);
  const ConsumerLedger::Filled filled = ledger.AddFilled(0, 0, 0, {});
  EXPECT_TRUE(filled.round_released);
  EXPECT_EQ(ledger.Release(filled.batch), std::nullopt);  // the source was told already
}

TEST(ConsumerLedgerTest, TakeReady_LastBatchOfAllSourcesIsGiven_IsComplete) {
  ConsumerLedger ledger(Plan({{1, 0}, {2, 0}}), kWindowBytes);
  EXPECT_FALSE(ledger.TakeReady().has_value());
  ledger.TakeRound(1, 0);
  const uint64_t mapped = ledger.AddMapped(1, 0, {});
  auto received = ledger.TakeReady();
  ASSERT_TRUE(received.has_value());
  EXPECT_EQ(Numbers(*received), std::vector<uint64_t>{mapped});
  EXPECT_FALSE(received->complete);
  EXPECT_FALSE(ledger.TakeReady().has_value());  // given once

  ledger.TakeRound(0, 0);
  ledger.ExpectWindows(0, 0, 2);
  const uint64_t one = ledger.AddFilled(0, 0, 1, {}).batch;
  EXPECT_FALSE(ledger.TakeReady()->complete);
  const uint64_t two = ledger.AddFilled(0, 0, 1, {}).batch;
  EXPECT_NE(one, two);
  received = ledger.TakeReady();
  ASSERT_TRUE(received.has_value());
  EXPECT_EQ(Numbers(*received), std::vector<uint64_t>{two});
  EXPECT_TRUE(received->complete);
  EXPECT_TRUE(ledger.TakeReady()->complete);  // as often as it is asked
}

TEST(ConsumerLedgerTest, TakeReady_PlanThatTakesNothing_IsCompleteAtOnce) {
  ConsumerLedger ledger(Plan({}), kWindowBytes);
  EXPECT_EQ(ledger.sources(), 0u);
  EXPECT_TRUE(ledger.TakeReady()->complete);
}

TEST(ConsumerLedgerTest, Release_BatchThatIsNotOut_ReleasesNothing) {
  ConsumerLedger ledger(Plan({{1, 0}}), kWindowBytes);
  EXPECT_EQ(ledger.Release(1), std::nullopt);
  ledger.TakeRound(0, 0);
  const uint64_t batch = ledger.AddMapped(0, 0, {});
  EXPECT_EQ(ledger.Release(batch), 0u);
  EXPECT_EQ(ledger.Release(batch), std::nullopt);
}

TEST(ConsumerLedgerTest, PutBack_OtherBatchesCameMeanwhile_GivesTheOlderOnesFirst) {
  ConsumerLedger ledger(Plan({{1, 0}, {2, 0}}), kWindowBytes);
  ledger.TakeRound(0, 0);
  const uint64_t lost = ledger.AddMapped(0, 0, {});
  auto received = ledger.TakeReady();
  ASSERT_TRUE(received.has_value());
  ledger.TakeRound(1, 0);
  const uint64_t newer = ledger.AddMapped(1, 0, {});
  ledger.PutBack(std::move(received->batches));
  received = ledger.TakeReady();
  ASSERT_TRUE(received.has_value());
  EXPECT_EQ(Numbers(*received), (std::vector<uint64_t>{lost, newer}));
  EXPECT_TRUE(received->complete);
}

TEST(ConsumerLedgerTest, DropReady_GivenAndReadyBatches_AreReleasedAndGivenToNobody) {
  ConsumerLedger ledger(Plan({{1, 0}, {1, 1}, {2, 0}}), kWindowBytes);
  ledger.TakeRound(0, 0);
  const uint64_t given = ledger.AddMapped(0, 0, {});
  ledger.TakeReady();
  ledger.TakeRound(0, 1);
  const uint64_t ready = ledger.AddMapped(0, 1, {});
  EXPECT_EQ(ledger.DropReady(), (std::vector<uint64_t>{given, ready}));
  EXPECT_FALSE(ledger.TakeReady().has_value());
}

TEST(ConsumerLedgerTest, AcceptRead_ALentRound_IsToComeUntilItIsReadRight) {
  ConsumerLedger ledger(Plan({{1, 0}, {1, 1}}), kWindowBytes);
  ledger.AddLent(0, 0, {}, *ledger.TakeRound(0, 0));
  ledger.AddLent(0, 1, {}, *ledger.TakeRound(0, 1));
  const auto received = ledger.TakeReady();
  ASSERT_TRUE(received.has_value());
  EXPECT_EQ(Numbers(*received), (std::vector<uint64_t>{1, 2}));
  EXPECT_FALSE(received->complete);
  EXPECT_EQ(ledger.unread(), 2u);
  EXPECT_EQ(ledger.Release(1), std::nullopt) << "only what it read counts";
  EXPECT_EQ(ledger.ReleasedBelow(0), 0u);
  EXPECT_EQ(ledger.TakeRead(1)->round, 0u);
  EXPECT_FALSE(ledger.TakeRead(1).has_value()) << "said before";
  EXPECT_FALSE(ledger.TakeRead(3).has_value()) << "no batch";
  ledger.AcceptRead(1);
  EXPECT_EQ(ledger.ReleasedBelow(0), 1u);
  EXPECT_FALSE(ledger.TakeReady().has_value());
  ASSERT_TRUE(ledger.TakeRead(2).has_value());
  ledger.AcceptRead(2);
  EXPECT_EQ(ledger.unread(), 0u);
  EXPECT_TRUE(ledger.TakeReady()->complete);
}

TEST(ConsumerLedgerTest, RefuseRead_ALentRound_ComesOnceMore) {
  ConsumerLedger ledger(Plan({{1, 0}}), kWindowBytes);
  ledger.AddLent(0, 0, {}, *ledger.TakeRound(0, 0));
  ASSERT_TRUE(ledger.TakeReady().has_value());
  ASSERT_TRUE(ledger.TakeRead(1).has_value());
  EXPECT_EQ(ledger.RefuseRead(1).size(), 1u);
  EXPECT_EQ(ledger.ReleasedBelow(0), 0u) << "its bytes are still needed";
  EXPECT_FALSE(ledger.TakeReady().has_value());
  EXPECT_EQ(ledger.AddMapped(0, 0, {}), 2u);
  const auto again = ledger.TakeReady();
  EXPECT_EQ(Numbers(*again), std::vector<uint64_t>{2});
  EXPECT_TRUE(again->complete);
  EXPECT_EQ(ledger.Release(2), 0u);
  EXPECT_EQ(ledger.ReleasedBelow(0), 1u);
}

TEST(ConsumerLedgerTest, TakeRead_ABatchOfABuffer_IsNone) {
  ConsumerLedger ledger(Plan({{1, 0}}), kWindowBytes);
  ledger.TakeRound(0, 0);
  const uint64_t mapped = ledger.AddMapped(0, 0, {});
  EXPECT_FALSE(ledger.TakeRead(mapped).has_value());
}

}  // namespace
}  // namespace cairn
