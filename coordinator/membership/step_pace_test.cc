#include "coordinator/membership/step_pace.h"

#include <gtest/gtest.h>

namespace cairn {
namespace {

const absl::Time kStart = absl::UnixEpoch() + absl::Hours(1);

TEST(StepPaceTest, Moved_Evenly_IsTheRate) {
  StepPace pace;
  for (int64_t step = 0; step < 2000; ++step) pace.Moved(step, kStart + step * absl::Milliseconds(5));
  EXPECT_NEAR(pace.steps_per_second(), 200, 1);
  StepPace slow;
  for (int64_t step = 7; step < 12; ++step) slow.Moved(step, kStart + step * absl::Seconds(30));
  EXPECT_NEAR(slow.steps_per_second(), 1.0 / 30, 1e-6);
}

TEST(StepPaceTest, Moved_TwoReportsComeTogether_AreNoStepsOfThatMoment) {
  StepPace pace;
  pace.Moved(100, kStart);
  pace.Moved(160, kStart + absl::Microseconds(500));
  EXPECT_EQ(pace.steps_per_second(), 0) << "nothing is known yet";
  pace.Moved(200, kStart + absl::Milliseconds(500));
  EXPECT_NEAR(pace.steps_per_second(), 200, 1);
}

TEST(StepPaceTest, Moved_ReportWasDelayed_TheSlowestStretchCounts) {
  StepPace pace;
  pace.Moved(0, kStart);
  pace.Moved(200, kStart + absl::Seconds(1));
  // Two seconds on its way, and the next one comes right after it.
  pace.Moved(400, kStart + absl::Milliseconds(3700));
  pace.Moved(800, kStart + absl::Milliseconds(4000));
  EXPECT_LE(pace.steps_per_second(), 200) << "and not 1333";
}

TEST(StepPaceTest, Moved_ToALoadedCheckpoint_IsNoPace) {
  StepPace pace;
  for (int64_t step = 0; step <= 100; step += 10) pace.Moved(step, kStart + step * absl::Milliseconds(100));
  pace.Moved(50'000, kStart + absl::Seconds(11));
  EXPECT_NEAR(pace.steps_per_second(), 10, 0.1);
  pace.Moved(40'000, kStart + absl::Seconds(12));  // an older one
  pace.Moved(40'010, kStart + absl::Seconds(13));
  EXPECT_NEAR(pace.steps_per_second(), 10, 0.1);
}

TEST(StepPaceTest, Moved_FasterNow_IsFollowedAfterThreeStretches) {
  StepPace pace;
  absl::Time now = kStart;
  int64_t step = 0;
  const auto run = [&](int64_t steps) {
    for (int stretch = 0; stretch < 4; ++stretch) pace.Moved(step += steps, now += absl::Seconds(1));
  };
  run(1);
  EXPECT_NEAR(pace.steps_per_second(), 1, 0.01);
  run(50);
  EXPECT_NEAR(pace.steps_per_second(), 50, 0.01);
}

}  // namespace
}  // namespace cairn
