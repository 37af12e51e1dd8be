#include "gpu/share/look_pace.h"

#include "gtest/gtest.h"

namespace cairn {
namespace {

// Polls work that takes `takes` until its end is noticed. Returns how late that is.
absl::Duration Watch(LookPace& pace, absl::Duration takes, int& looks) {
  absl::Duration now;
  for (looks = 1;; ++looks) {
    const absl::Duration pause = pace.Pause(true);
    now += pause;
    pace.Waited(pause);
    if (now >= takes) break;
  }
  pace.Finished();
  return now - takes;
}

TEST(LookPaceTest, QuickWorkIsSeenAtOnce) {
  LookPace pace;
  int looks = 0;
  EXPECT_LE(Watch(pace, absl::Microseconds(40), looks), absl::Microseconds(10));
  EXPECT_EQ(looks, 1);
}

TEST(LookPaceTest, LongWorkIsSeenAtMostATenthLateAndAtMostAMillisecond) {
  for (int takes = 100; takes < 3'000'000; takes = takes * 5 / 4) {
    LookPace pace;
    int looks = 0;
    const absl::Duration late = Watch(pace, absl::Microseconds(takes), looks);
    EXPECT_LE(late, std::max(absl::Microseconds(takes) / 10, absl::Microseconds(50))) << takes;
    EXPECT_LE(late, absl::Milliseconds(1)) << takes;
  }
}

TEST(LookPaceTest, WorkLikeTheLastIsLeftAloneForHalfOfIt) {
  LookPace pace;
  int first = 0, second = 0;
  (void)Watch(pace, absl::Milliseconds(8), first);
  EXPECT_LE(Watch(pace, absl::Milliseconds(8), second), absl::Microseconds(800));
  EXPECT_LT(2 * second, first);
}

TEST(LookPaceTest, WorkThatIsShorterThanTheLastIsSeenWithinHalfOfThatAndFiveMilliseconds) {
  for (const int last : {1, 8, 1000}) {
    LookPace pace;
    int looks = 0;
    (void)Watch(pace, absl::Milliseconds(last), looks);
    EXPECT_LE(Watch(pace, absl::Microseconds(1), looks),
              std::min(absl::Milliseconds(last) * 0.6, absl::Milliseconds(5)))
        << last;
    EXPECT_EQ(looks, 1);
  }
}

TEST(LookPaceTest, WorkThatIsNotInTheDeviceYetIsNotLeftAlone) {
  LookPace pace;
  int looks = 0;
  (void)Watch(pace, absl::Milliseconds(8), looks);
  EXPECT_EQ(pace.Pause(false), absl::Microseconds(50));
  EXPECT_GT(pace.Pause(true), absl::Milliseconds(3));
}

TEST(LookPaceTest, WhatWasWaitedBeforeTheWorkBeganDoesNotCount) {
  LookPace pace;
  pace.Waited(absl::Seconds(1));
  pace.Idle();
  EXPECT_EQ(pace.Pause(true), absl::Microseconds(50));
}

}  // namespace
}  // namespace cairn
