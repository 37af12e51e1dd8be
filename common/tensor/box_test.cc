#include "common/tensor/box.h"

#include <gtest/gtest.h>

namespace cairn {
namespace {

TEST(ElementCountTest, ElementCount_ZeroScalarAndOverflow_AreTold) {
  EXPECT_EQ(ElementCount({}), 1);
  EXPECT_EQ(ElementCount(Shape{3, 0, INT64_MAX, INT64_MAX}), 0);
  EXPECT_EQ(ElementCount(Shape{INT64_MAX, INT64_MAX, 0}), 0);
  EXPECT_EQ(ElementCount(Shape{1LL << 62, 2}), std::nullopt);
  EXPECT_EQ(ElementCount(Shape{-1}), std::nullopt);
  EXPECT_EQ(ElementCount(Shape{1LL << 31, 1LL << 31}), 1LL << 62);
}

TEST(ContainsTest, Contains_BordersAndOverflow_AreTold) {
  const Shape global = {4, 8};
  EXPECT_TRUE(Contains(global, Box{{0, 0}, {4, 8}}));
  EXPECT_TRUE(Contains(global, Box{{4, 8}, {0, 0}}));
  EXPECT_FALSE(Contains(global, Box{{1, 0}, {4, 8}}));
  EXPECT_FALSE(Contains(global, Box{{INT64_MAX, 0}, {1, 8}}));
  EXPECT_FALSE(Contains(global, Box{{-1, 0}, {1, 8}}));
  EXPECT_FALSE(Contains(global, Box{{0}, {4}}));
  EXPECT_TRUE(Contains(Shape{}, Box{}));
}

TEST(IntersectTest, Intersect_EveryPairOfSmallRanges_EqualsTheElements) {
  for (int64_t a = 0; a < 5; ++a) {
    for (int64_t m = 0; m < 4; ++m) {
      for (int64_t b = 0; b < 5; ++b) {
        for (int64_t n = 0; n < 4; ++n) {
          Shape both;
          for (int64_t x = 0; x < 10; ++x) {
            if (x >= a && x < a + m && x >= b && x < b + n) both.push_back(x);
          }
          const auto common = Intersect(Box{{a}, {m}}, Box{{b}, {n}});
          ASSERT_EQ(common.has_value(), !both.empty());
          if (!common) continue;
          EXPECT_EQ(common->offset[0], both.front());
          EXPECT_EQ(common->shape[0], static_cast<int64_t>(both.size()));
        }
      }
    }
  }
  EXPECT_TRUE(Intersect(Box{}, Box{}).has_value());
}

TEST(ToStringTest, ToString_EachKindOfBox_HasItsForm) {
  EXPECT_EQ(ToString(Box{{0, 8}, {4, 8}}), "[0, 4):[8, 16)");
  EXPECT_EQ(ToString(Box{}), "scalar");
  EXPECT_EQ(ShapeToString(Shape{4}), "(4,)");
  EXPECT_EQ(ShapeToString(Shape{}), "()");
}

}  // namespace
}  // namespace cairn
