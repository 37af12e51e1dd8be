#include "common/base/duration_text.h"

#include <gtest/gtest.h>

namespace cairn {
namespace {

TEST(DurationTextTest, DurationText_EachLength_IsRoundedToWhatAReaderNeeds) {
  EXPECT_EQ(DurationText(absl::Seconds(5) + absl::Nanoseconds(8192)), "5s");
  EXPECT_EQ(DurationText(absl::Seconds(2.46)), "2.5s");
  EXPECT_EQ(DurationText(absl::Seconds(9.99)), "10s");
  EXPECT_EQ(DurationText(absl::Seconds(89.7)), "1m30s");
  EXPECT_EQ(DurationText(absl::Hours(2) + absl::Milliseconds(3)), "2h");
  EXPECT_EQ(DurationText(absl::Microseconds(250'400)), "250ms");
  EXPECT_EQ(DurationText(absl::ZeroDuration()), "0");
  EXPECT_EQ(DurationText(absl::InfiniteDuration()), "inf");
  EXPECT_EQ(DurationText(-absl::Seconds(3)), "-3s");
}

}  // namespace
}  // namespace cairn
