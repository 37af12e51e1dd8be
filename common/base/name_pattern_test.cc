#include "common/base/name_pattern.h"

#include <gtest/gtest.h>

namespace cairn {
namespace {

TEST(NamePatternTest, NumbersThatStandAlone_BecomeStars) {
  EXPECT_EQ(PatternOf("layers.12.w"), "layers.*.w");
  EXPECT_EQ(PatternOf("0.1.2"), "*.*.*");
  EXPECT_EQ(PatternOf("blocks/3/experts[17]"), "blocks/*/experts[*]");
  EXPECT_EQ(PatternOf("conv2d.w1.layer_7"), "conv2d.w1.layer_*");
  EXPECT_EQ(PatternOf("embed"), "embed");
  EXPECT_EQ(PatternOf(""), "");
}

}  // namespace
}  // namespace cairn
