#include "cli/client/removals.h"

#include <gtest/gtest.h>

#include "common/base/time_proto.h"

namespace cairn::cli {
namespace {

v1::JobSummary JobWith(uint32_t due, uint32_t refused, absl::Duration delay) {
  v1::JobSummary job;
  job.set_removals_due(due);
  job.set_removals_refused(refused);
  SetDuration(delay, *job.mutable_removal_delay());
  return job;
}

TEST(RemovalsTest, RemovalsOf_SeveralJobs_AddsThemUpWithoutWhatWasRefused) {
  const Removals removals =
      RemovalsOf({JobWith(3, 1, absl::Seconds(2)), JobWith(4, 0, absl::Milliseconds(17'200)), v1::JobSummary()});
  EXPECT_EQ(removals.due, 6U);
  EXPECT_EQ(removals.refused, 1U);
  EXPECT_EQ(removals.delay, absl::Milliseconds(17'200));
}

TEST(RemovalsTest, WaitingText_NotYetBegun_SaysWhenItBegins) {
  EXPECT_EQ(WaitingText({.due = 1, .delay = absl::Milliseconds(17'200)}),
            "waiting for the files of 1 deleted checkpoint to be removed, which begins in 18s, when no load of an "
            "earlier coordinator can read them any more (Ctrl-C leaves them to the next coordinator)");
  EXPECT_EQ(WaitingText({.due = 2}),
            "waiting for the files of 2 deleted checkpoints to be removed (Ctrl-C leaves them to the next "
            "coordinator)");
}

}  // namespace
}  // namespace cairn::cli
