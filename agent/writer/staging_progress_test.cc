#include "agent/writer/staging_progress.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace cairn {
namespace {

constexpr uint64_t kAll = StagingProgress::kAll;

TEST(StagingProgressTest, Await_WhatIsStaged_ReturnsAtOnce) {
  StagingProgress staged(std::vector<uint64_t>{3});
  EXPECT_TRUE(staged.Await(1));
  EXPECT_TRUE(staged.Await(kAll));
  EXPECT_EQ(staged.object_bytes(), std::vector<uint64_t>{3});
}

TEST(StagingProgressTest, Await_APart_FollowsTheTrainersWord) {
  uint64_t mark = 0;
  StagingProgress staging([&] { return mark; });
  EXPECT_FALSE(staging.Await(1));
  mark = 4096;
  EXPECT_TRUE(staging.Await(4096));
  EXPECT_FALSE(staging.Await(4097));
  mark = kAll;
  EXPECT_FALSE(staging.Await(kAll)) << "a trainer cannot say so by its word: the objects' lengths are missing";
  EXPECT_TRUE(staging.Await(kAll - 1));
}

TEST(StagingProgressTest, End_WakesWhoWaitsForAllAndCountsOnce) {
  std::atomic<bool> ended = false;
  StagingProgress staging([] { return uint64_t{0}; });
  std::thread waiting([&] {
    while (!staging.Await(kAll)) EXPECT_FALSE(ended);
  });
  staging.End({1, 2});
  waiting.join();
  ended = true;
  staging.End({9});
  EXPECT_EQ(staging.object_bytes(), (std::vector<uint64_t>{1, 2}));
  EXPECT_TRUE(staging.Await(7));
}

}  // namespace
}  // namespace cairn
