#include "planner/layout/name_parts.h"

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

namespace cairn {
namespace {

TEST(NamePartsTest, HasPartsOf_NeedsADotBehindTheWhole) {
  const std::vector<std::string_view> names = {"model", "model-x", "model.a.b", "modelx", "other.c"};
  EXPECT_TRUE(HasPartsOf(names, "model"));
  EXPECT_TRUE(HasPartsOf(names, "model.a"));
  EXPECT_TRUE(HasPartsOf(names, "other"));
  EXPECT_FALSE(HasPartsOf(names, "model.a.b"));
  EXPECT_FALSE(HasPartsOf(names, "modelx"));
  EXPECT_FALSE(HasPartsOf(names, "mod"));
  EXPECT_FALSE(HasPartsOf(names, "z"));
  EXPECT_FALSE(HasPartsOf({}, "model"));
}

TEST(NamePartsTest, IsPartOfAny_AnyOfTheWholesCounts) {
  const std::vector<std::string_view> names = {"a", "b.c"};
  EXPECT_TRUE(IsPartOfAny(names, "a.x"));
  EXPECT_TRUE(IsPartOfAny(names, "a.x.y"));
  EXPECT_TRUE(IsPartOfAny(names, "b.c.d"));
  EXPECT_FALSE(IsPartOfAny(names, "a"));
  EXPECT_FALSE(IsPartOfAny(names, "ax.y"));
  EXPECT_FALSE(IsPartOfAny(names, "b.d"));
  EXPECT_FALSE(IsPartOfAny({}, "a.x"));
}

}  // namespace
}  // namespace cairn
