#include "coordinator/server/listening_clock.h"

#include <gtest/gtest.h>

namespace cairn {
namespace {

constexpr absl::Time kStart = absl::UnixEpoch();

TEST(ListeningClockTest, Deaf_QuickCalls_IsNothing) {
  ListeningClock clock(absl::Seconds(5));
  absl::Time now = kStart;
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(clock.Due(now));
    clock.Begin(now);
    EXPECT_FALSE(clock.Due(now + absl::Hours(1))) << "one call after the other";
    now += absl::Milliseconds(50);
    clock.End(now);
    EXPECT_FALSE(clock.Due(now));
    now += ListeningClock::kInterval;
  }
  EXPECT_EQ(clock.deaf(), absl::ZeroDuration());
}

TEST(ListeningClockTest, Deaf_SlowCalls_AddsUpAlsoThatOfTheCallUnderWay) {
  ListeningClock clock(absl::Seconds(5));
  clock.Begin(kStart);
  clock.Pass(kStart + absl::Milliseconds(50));
  EXPECT_EQ(clock.deaf(), absl::ZeroDuration());
  clock.Pass(kStart + absl::Seconds(3));
  EXPECT_EQ(clock.deaf(), absl::Seconds(3) - ListeningClock::kUsual);
  clock.End(kStart + absl::Seconds(4));
  const absl::Duration once = absl::Seconds(4) - ListeningClock::kUsual;
  EXPECT_EQ(clock.deaf(), once);
  clock.Pass(kStart + absl::Seconds(9));
  EXPECT_EQ(clock.deaf(), once) << "no call was under way";
}

TEST(ListeningClockTest, Deaf_ProcessWasStopped_IsNotCountedHere) {
  ListeningClock clock(absl::Seconds(5));
  clock.Begin(kStart);
  clock.Pass(kStart + absl::Seconds(1));
  clock.Pass(kStart + absl::Seconds(61));
  EXPECT_EQ(clock.deaf(), absl::Seconds(1) - ListeningClock::kUsual);
}

}  // namespace
}  // namespace cairn
