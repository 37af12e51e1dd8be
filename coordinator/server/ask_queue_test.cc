#include "coordinator/server/ask_queue.h"

#include <gtest/gtest.h>

#include <vector>

namespace cairn {
namespace {

std::vector<int> TakeAll(AskQueue& queue) {
  std::vector<int> taken;
  while (const auto rank = queue.Take()) taken.push_back(*rank);
  return taken;
}

TEST(AskQueueTest, Take_RanksThatWereAdded_ComeInThatOrderOnce) {
  AskQueue queue;
  for (const int rank : {3, 1, 3, 2, 1}) queue.Add(rank);
  EXPECT_EQ(TakeAll(queue), (std::vector<int>{3, 1, 2}));
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(queue.Take(), std::nullopt);
  queue.Add(3);
  EXPECT_EQ(TakeAll(queue), std::vector<int>{3});
}

TEST(AskQueueTest, Add_AllAreWokenBetweenAnyTwoTurns_NoRankIsLeftOut) {
  constexpr int kRanks = 10;
  AskQueue queue;
  std::vector<int> taken(kRanks, 0);
  for (int turn = 0; turn < 4 * kRanks; ++turn) {
    for (int rank = 0; rank < kRanks; ++rank) queue.Add(rank);
    ++taken[static_cast<size_t>(queue.Take().value())];
  }
  EXPECT_EQ(taken, std::vector<int>(kRanks, 4));
}

}  // namespace
}  // namespace cairn
