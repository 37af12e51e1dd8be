#include "common/process/quantity.h"

#include <gtest/gtest.h>

namespace cairn {
namespace {

TEST(ParseDurationTest, ParseDuration_FormsOfGo_AreRead) {
  EXPECT_EQ(*ParseDuration("90s"), absl::Seconds(90));
  EXPECT_EQ(*ParseDuration("1h30m"), absl::Minutes(90));
  EXPECT_EQ(*ParseDuration("250ms"), absl::Milliseconds(250));
  for (const char* text : {"", "5", "s", "-1s", "inf", "1 m"}) EXPECT_FALSE(ParseDuration(text).ok()) << text;
}

TEST(ParseSizeTest, ParseSize_UnitsAndLimits_AreRead) {
  EXPECT_EQ(*ParseSize("17"), 17);
  EXPECT_EQ(*ParseSize("5GB"), 5'000'000'000);
  EXPECT_EQ(*ParseSize("1.5 GiB"), 3LL << 29);
  EXPECT_EQ(*ParseSize("8388607TiB"), 8388607LL << 40);
  for (const char* text : {"", "GiB", "-1", "1XB", "1e3", "8388608TiB", "1.2.3MB", "9223372036854775808"}) {
    EXPECT_FALSE(ParseSize(text).ok()) << text;
  }
}

TEST(FormatSizeTest, FormatSize_AnySize_HasThreeDigits) {
  EXPECT_EQ(FormatSize(312), "312 B");
  EXPECT_EQ(FormatSize(3LL << 29), "1.50 GiB");
  EXPECT_EQ(FormatSize(1023 * 1024), "1.00 MiB");
}

}  // namespace
}  // namespace cairn
