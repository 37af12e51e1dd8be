#include "coordinator/decision/listening_clock.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace cairn {
namespace {

constexpr absl::Time kStart = absl::UnixEpoch();

// Lets time pass as it does while the process runs.
void LetRun(ListeningClock& clock, absl::Time& now, absl::Duration duration) {
  const absl::Time end = now + duration;
  while (now < end) {
    now = std::min(end, now + ListeningClock::kPass);
    clock.Pass(now);
  }
}

TEST(ListeningClockTest, Deaf_QuickCalls_IsNothing) {
  ListeningClock clock;
  absl::Time now = kStart;
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(clock.Due(now));
    clock.Begin(now);
    EXPECT_FALSE(clock.Due(now + absl::Hours(1))) << "one call after the other";
    now += absl::Milliseconds(50);
    clock.End(now);
    EXPECT_FALSE(clock.Due(now));
    LetRun(clock, now, ListeningClock::kInterval);
  }
  EXPECT_EQ(clock.deaf(), absl::ZeroDuration());
  EXPECT_EQ(clock.stopped(), absl::ZeroDuration());
  EXPECT_EQ(clock.Running(now), now);
}

TEST(ListeningClockTest, Deaf_SlowCalls_AddsUpAlsoThatOfTheCallUnderWay) {
  ListeningClock clock;
  absl::Time now = kStart;
  clock.Begin(now);
  LetRun(clock, now, absl::Milliseconds(50));
  EXPECT_EQ(clock.deaf(), absl::ZeroDuration());
  LetRun(clock, now, absl::Milliseconds(2950));
  EXPECT_EQ(clock.deaf(), absl::Seconds(3) - ListeningClock::kUsual);
  LetRun(clock, now, absl::Seconds(1));
  clock.End(now);
  const absl::Duration once = absl::Seconds(4) - ListeningClock::kUsual;
  EXPECT_EQ(clock.deaf(), once);
  LetRun(clock, now, absl::Seconds(5));
  EXPECT_EQ(clock.deaf(), once) << "no call was under way";
  EXPECT_EQ(clock.stopped(), absl::ZeroDuration());
}

TEST(ListeningClockTest, Stopped_ProcessIsStoppedOnce_IsTheGapButForOnePass) {
  ListeningClock clock;
  absl::Time now = kStart;
  LetRun(clock, now, absl::Seconds(1));
  clock.Pass(now += absl::Hours(1));
  EXPECT_EQ(clock.stopped(), absl::Hours(1) - ListeningClock::kPass);
  EXPECT_EQ(clock.Running(now), kStart + absl::Seconds(1) + ListeningClock::kPass);
}

// A container that may use a tenth of a core: no single stop is long, and together they are nearly everything.
TEST(ListeningClockTest, Stopped_ProcessIsStoppedInPieces_IsNearlyAllOfIt) {
  ListeningClock clock;
  absl::Time now = kStart;
  for (int i = 0; i < 60; ++i) {
    LetRun(clock, now, absl::Milliseconds(100));
    clock.Pass(now += absl::Milliseconds(900));
  }
  EXPECT_GE(clock.stopped(), absl::Seconds(60 * 0.8));
  EXPECT_LE(clock.stopped(), absl::Seconds(60 * 0.9));
  EXPECT_EQ(clock.deaf(), absl::ZeroDuration());
}

// A stop is not counted once more as a slow call, and all of a slow call is counted as one of the two.
TEST(ListeningClockTest, Stopped_WhileACallIsUnderWay_CountsEveryMomentOnce) {
  ListeningClock clock;
  absl::Time now = kStart;
  clock.Begin(now);
  LetRun(clock, now, ListeningClock::kUsual);
  for (int i = 0; i < 10; ++i) {
    LetRun(clock, now, absl::Milliseconds(100));
    clock.Pass(now += absl::Milliseconds(900));
  }
  EXPECT_EQ(clock.stopped() + clock.deaf(), absl::Seconds(10));
}

TEST(ListeningClockTest, Pass_TimersComeLateForEver_TimeGoesOn) {
  ListeningClock clock;
  absl::Time now = kStart;
  clock.Pass(now);
  for (int i = 0; i < 100; ++i) clock.Pass(now += absl::Seconds(1));
  EXPECT_EQ(clock.Running(now), kStart + 100 * ListeningClock::kPass);
}

TEST(ListeningClockTest, Pass_ThreadsComeInAnotherOrder_IgnoresTheEarlierMoment) {
  ListeningClock clock;
  clock.Pass(kStart + absl::Milliseconds(150));
  clock.Pass(kStart);
  clock.Pass(kStart + absl::Milliseconds(300));
  EXPECT_EQ(clock.stopped(), absl::ZeroDuration());
}

}  // namespace
}  // namespace cairn
