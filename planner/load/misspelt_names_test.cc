#include "planner/load/misspelt_names.h"

#include <gtest/gtest.h>

namespace cairn {
namespace {

TEST(MisspeltNamesTest, MisspeltNames_SomeAreNear_NamesThese) {
  EXPECT_EQ(MisspeltNames({"optimiser.w", "quite.another", "schedular"}, {"optimizer.w", "scheduler", "step"}),
            "; for 'optimiser.w', did you mean 'optimizer.w'?; for 'schedular', did you mean 'scheduler'?");
}

TEST(MisspeltNamesTest, MisspeltNames_ManyAreNear_NamesThree) {
  EXPECT_EQ(MisspeltNames({"first.aa", "second.aa", "third.aa", "fourth.aa"},
                          {"first.ab", "fourth.ab", "second.ab", "third.ab"}),
            "; for 'first.aa', did you mean 'first.ab'?; for 'second.aa', did you mean 'second.ab'?; for 'third.aa', "
            "did you mean 'third.ab'?");
}

TEST(MisspeltNamesTest, MisspeltNames_NoneIsNear_IsEmpty) {
  EXPECT_EQ(MisspeltNames({"new.weight"}, {"completely.different.name"}), "");
  EXPECT_EQ(MisspeltNames({"new.weight"}, {}), "");
}

TEST(MisspeltNamesTest, MisspeltNames_ManyOthers_AreNotCompared) {
  EXPECT_EQ(MisspeltNames({"optimiser"}, std::vector<std::string_view>(50001, "optimizer")), "");
  EXPECT_NE(MisspeltNames({"optimiser"}, std::vector<std::string_view>(50000, "optimizer")), "");
}

}  // namespace
}  // namespace cairn
