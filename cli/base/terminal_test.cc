#include "cli/base/terminal.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace cairn::cli {
namespace {

TEST(TableTest, ToString_TextAndNumbers_AlignsTextLeftAndNumbersRight) {
  Table table({"RANK", "PHASE", "NOTE"});
  table.Add({"7", "writing", ""});
  table.Add({"12", "té", "late"});
  EXPECT_EQ(table.ToString(),
            "RANK  PHASE    NOTE\n"
            "   7  writing\n"
            "  12  té       late\n");
}

TEST(TableTest, ToString_WhatATerminalWouldObey_IsSpelled) {
  Table table({"NAME", "FILES"});
  table.Add({"w\033[2J\n", "1"});
  EXPECT_EQ(table.ToString(),
            "NAME          FILES\n"
            "w\\x1b[2J\\x0a      1\n");
}

TEST(ColouredTest, Coloured_WhatATerminalWouldObey_IsSpelled) {
  EXPECT_EQ(Coloured(stdout, Colour::kNone, "a\033[2J\nb\u202e"), "a\\x1b[2J\nb\\xe2\\x80\\xae");
  EXPECT_EQ(ForTerminal("caf\u00e9\t\x07"), "caf\u00e9\t\\x07");
}

TEST(IndentedLinesTest, IndentedLines_ManyNames_ShowsTheFirstAndCountsTheOthers) {
  EXPECT_EQ(IndentedLines({}), "");
  EXPECT_EQ(IndentedLines({"a", "b\033[2J\n"}), "  a\n  b\\x1b[2J\\x0a\n");
  const std::string of_many = IndentedLines(std::vector<std::string>(100'000, "w"));
  EXPECT_TRUE(of_many.starts_with("  w\n  w\n"));
  EXPECT_TRUE(of_many.ends_with("  w\n  and 99990 more (--format=json)\n")) << of_many;
  EXPECT_LT(of_many.size(), 100u);
}

TEST(ProgressBarTest, ProgressBar_NothingAndAll_StaysInItsBorders) {
  EXPECT_EQ(ProgressBar(0, 0), "[                        ]   0%  0 B of 0 B");
  EXPECT_EQ(ProgressBar(5, 2), "[########################] 100%  5 B of 2 B");
}

TEST(ShortDurationTest, ShortDuration_EachMagnitude_HasItsForm) {
  EXPECT_EQ(ShortDuration(absl::Milliseconds(12)), "12 ms");
  EXPECT_EQ(ShortDuration(absl::Milliseconds(3240)), "3.2 s");
  EXPECT_EQ(ShortDuration(absl::Seconds(250)), "4m10s");
  EXPECT_EQ(ShortDuration(absl::Seconds(3720)), "1h02m");
}

}  // namespace
}  // namespace cairn::cli
