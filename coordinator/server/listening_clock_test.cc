#include "coordinator/server/listening_clock.h"

#include <gtest/gtest.h>

namespace cairn {
namespace {

constexpr absl::Time kStart = absl::UnixEpoch();

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
    now += ListeningClock::kInterval;
  }
  EXPECT_EQ(clock.deaf(now), absl::ZeroDuration());
}

TEST(ListeningClockTest, Deaf_SlowCalls_AddsUpAlsoThatOfTheCallUnderWay) {
  ListeningClock clock;
  clock.Begin(kStart);
  EXPECT_EQ(clock.deaf(kStart + absl::Seconds(3)), absl::Seconds(3) - ListeningClock::kUsual);
  clock.End(kStart + absl::Seconds(4));
  const absl::Duration once = absl::Seconds(4) - ListeningClock::kUsual;
  EXPECT_EQ(clock.deaf(kStart + absl::Seconds(9)), once);
  clock.Begin(kStart + absl::Seconds(9));
  EXPECT_EQ(clock.deaf(kStart + absl::Seconds(10)), once + absl::Seconds(1) - ListeningClock::kUsual);
}

}  // namespace
}  // namespace cairn
