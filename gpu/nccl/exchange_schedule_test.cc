#include "gpu/nccl/exchange_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <tuple>
#include <utility>

namespace cairn {
namespace {

using Schedules = std::vector<std::vector<ExchangeStep>>;  // by rank

// Returns the transfers of each rank by a random plan, in which any rank may take any number of windows of any round of
// any other, and skip rounds. What some rounds of some ranks have goes to all.
std::vector<std::vector<ExchangeTransfer>> RandomPlan(std::mt19937_64& random) {
  const uint32_t ranks = 2 + static_cast<uint32_t>(random() % 7);
  std::vector<std::vector<ExchangeTransfer>> plan(ranks);
  for (uint32_t source = 0; source < ranks; ++source) {
    std::set<uint32_t> broadcast;
    for (uint32_t round = 0; round < 4; ++round) {
      if (random() % 4 == 0) broadcast.insert(round);
    }
    for (const uint32_t round : broadcast) {
      const uint32_t windows = 1 + static_cast<uint32_t>(random() % 4);
      for (uint32_t window = 0; window < windows; ++window) {
        const uint64_t bytes = random() % 5;
        for (uint32_t rank = 0; rank < ranks; ++rank) {
          plan[rank].push_back({source, rank == source, round, window, bytes, plan[rank].size(), true});
        }
      }
    }
    for (uint32_t consumer = 0; consumer < ranks; ++consumer) {
      if (source == consumer || random() % 3 == 0) continue;
      for (uint32_t round = 0; round < 4; ++round) {
        if (broadcast.contains(round) || random() % 2 == 0) continue;
        const uint32_t windows = 1 + static_cast<uint32_t>(random() % 4);
        for (uint32_t window = 0; window < windows; ++window) {
          const uint64_t bytes = random() % 5;
          plan[source].push_back({consumer, true, round, window, bytes, plan[source].size()});
          plan[consumer].push_back({source, false, round, window, bytes, plan[consumer].size()});
        }
      }
    }
  }
  for (auto& transfers : plan) std::shuffle(transfers.begin(), transfers.end(), random);
  return plan;
}

// Simulates ranks that enter their next steps in random order. A step ends when each of its peers has entered the step
// with the other end of the transfer, for a broadcast every rank. Returns whether all ranks finish.
bool AllEnd(const Schedules& schedules, std::mt19937_64& random) {
  std::vector<size_t> at(schedules.size(), 0);
  std::vector<bool> entered(schedules.size(), false);
  using Transfer = std::tuple<uint32_t, uint32_t, uint32_t, uint32_t>;  // from, to, round, window
  std::map<Transfer, int> open;
  const auto key = [&](uint32_t rank, const ExchangeTransfer& transfer) {
    if (transfer.broadcast) return Transfer(transfer.peer, transfer.peer, transfer.round, transfer.window);
    return transfer.send ? Transfer(rank, transfer.peer, transfer.round, transfer.window)
                         : Transfer(transfer.peer, rank, transfer.round, transfer.window);
  };
  for (int idle = 0; idle < 200;) {
    bool done = true;
    for (size_t rank = 0; rank < at.size(); ++rank) done = done && at[rank] == schedules[rank].size();
    if (done) return true;
    const auto rank = static_cast<uint32_t>(random() % at.size());
    ++idle;
    if (at[rank] == schedules[rank].size()) continue;
    const ExchangeStep& step = schedules[rank][at[rank]];
    if (!entered[rank]) {
      for (const ExchangeTransfer& transfer : step.transfers) ++open[key(rank, transfer)];
      entered[rank] = true;
      idle = 0;
    } else if (std::all_of(step.transfers.begin(), step.transfers.end(), [&](const ExchangeTransfer& transfer) {
                 const size_t ends = transfer.broadcast ? schedules.size() : 2;
                 return open[key(rank, transfer)] == static_cast<int>(ends);
               })) {
      entered[rank] = false;
      ++at[rank];
      idle = 0;
    }
  }
  return false;
}

TEST(ExchangeScheduleTest, MakeSchedule_OneRank_GroupsByRoundAndWindow) {
  const std::vector<ExchangeStep> steps = MakeSchedule({{2, true, 1, 0, 5, 0},
                                                        {1, false, 0, 1, 7, 1},
                                                        {1, true, 0, 0, 3, 2},
                                                        {2, false, 0, 0, 4, 3},
                                                        {3, false, 0, 0, 0, 4}});
  ASSERT_EQ(steps.size(), 3);
  EXPECT_EQ(steps[0].transfers.size(), 2) << "what has no bytes is left out";
  EXPECT_EQ(steps[0].bytes(true), 3);
  EXPECT_EQ(steps[0].bytes(false), 4);
  EXPECT_EQ(steps[1].window, 1);
  EXPECT_EQ(steps[2].round, 1);
}

TEST(ExchangeScheduleTest, MakeSchedule_Broadcasts_AllRanksHaveThemInOneOrder) {
  size_t several = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    std::mt19937_64 random(seed);
    std::map<std::pair<uint32_t, uint32_t>, std::vector<uint32_t>> roots;  // by (round, window)
    for (const auto& transfers : RandomPlan(random)) {
      for (const ExchangeStep& step : MakeSchedule(transfers)) {
        std::vector<uint32_t> own;
        bool others = false;
        for (const ExchangeTransfer& transfer : step.transfers) {
          ASSERT_FALSE(transfer.broadcast && others) << "broadcasts come first";
          others = others || !transfer.broadcast;
          if (transfer.broadcast) own.push_back(transfer.peer);
        }
        if (own.empty()) continue;
        several += own.size() > 1 ? 1 : 0;
        const auto known = roots.try_emplace({step.round, step.window}, own).first;
        ASSERT_EQ(known->second, own) << "seed " << seed;
      }
    }
  }
  EXPECT_GT(several, 100u);
}

TEST(ExchangeScheduleTest, MakeSchedule_RandomPlans_NeverWaitInACircle) {
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    std::mt19937_64 random(seed);
    Schedules schedules;
    for (const auto& transfers : RandomPlan(random)) schedules.push_back(MakeSchedule(transfers));
    ASSERT_TRUE(AllEnd(schedules, random)) << "seed " << seed;
  }
}

TEST(ExchangeScheduleTest, MakeCourse_OneRank_SaysInWhichRoundsItLends) {
  const std::vector<ExchangeRound> course =
      MakeCourse({{2, true, 4, 0, 5, 0}, {2, true, 1, 0, 0, 1}, {1, false, 4, 1, 7, 2}, {1, false, 2, 0, 7, 3}});
  ASSERT_EQ(course.size(), 3);
  EXPECT_EQ(course[0].round, 1);
  EXPECT_TRUE(course[0].lends) << "it has to release what nobody takes a byte of";
  EXPECT_TRUE(course[0].steps.empty());
  EXPECT_EQ(course[1].round, 2);
  EXPECT_FALSE(course[1].lends);
  EXPECT_EQ(course[2].steps.size(), 2);
  EXPECT_TRUE(course[2].lends);
}

// The simulation sees a circle where there is one.
TEST(ExchangeScheduleTest, AllEnd_OneRankGoesBackwards_FindsTheCircle) {
  size_t stuck = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    std::mt19937_64 random(seed);
    Schedules schedules;
    for (const auto& transfers : RandomPlan(random)) schedules.push_back(MakeSchedule(transfers));
    std::reverse(schedules[0].begin(), schedules[0].end());
    stuck += AllEnd(schedules, random) ? 0 : 1;
  }
  EXPECT_GT(stuck, 50u);
}

}  // namespace
}  // namespace cairn
