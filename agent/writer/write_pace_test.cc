#include "agent/writer/write_pace.h"

#include <gtest/gtest.h>

#include "common/base/fake_clock.h"

namespace cairn {
namespace {

TEST(WritePaceTest, Take_Writes_AreSpreadOverTime) {
  FakeClock clock;
  WritePace pace(1000, clock);
  EXPECT_EQ(pace.Take(500), absl::ZeroDuration());
  EXPECT_EQ(pace.Take(2000), absl::Milliseconds(500));
  clock.Advance(absl::Milliseconds(500));
  EXPECT_EQ(pace.Take(1), absl::Seconds(2)) << "after those two";
}

TEST(WritePaceTest, Take_AfterAPause_MakesNothingUp) {
  FakeClock clock;
  WritePace pace(1000, clock);
  EXPECT_EQ(pace.Take(1000), absl::ZeroDuration());
  clock.Advance(absl::Hours(1));
  EXPECT_EQ(pace.Take(1000), absl::ZeroDuration());
  EXPECT_EQ(pace.Take(1000), absl::Seconds(1)) << "an hour of silence is no right to an hour of writing";
}

}  // namespace
}  // namespace cairn
