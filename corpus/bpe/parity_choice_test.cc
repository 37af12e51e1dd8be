#include "corpus/bpe/parity_choice.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

namespace cairn::corpus {
namespace {

using Turns = std::vector<std::optional<size_t>>;

Turns Take(ParityChoice& choice, int count) {
  Turns turns;
  for (int i = 0; i < count; ++i) turns.push_back(choice.Next());
  return turns;
}

TEST(ParityChoice, Next_NoWindow_IsTheGroupWithTheMostTokens) {
  ParityChoice choice({}, {9, 9, 9}, {5, 7, 7});
  EXPECT_EQ(choice.Next(), 1u);
  choice.Shorten(1, 3);
  EXPECT_EQ(choice.Next(), 2u);
  choice.Shorten(2, 2);
  EXPECT_EQ(choice.Next(), 0u);
}

TEST(ParityChoice, Next_Ratios_IsTheGroupFarthestBelowItsOwn) {
  ParityChoice choice({.ratios = {1, 3}}, {100, 200}, {100, 100});
  EXPECT_EQ(choice.Next(), 1u);  // 1/1 against 2/3
  choice.Shorten(1, 50);
  EXPECT_EQ(choice.Next(), 0u);  // 1/1 against 4/3
  choice.Shorten(0, 25);
  EXPECT_EQ(choice.Next(), 0u);  // 4/3 against 4/3: the first
}

TEST(ParityChoice, Next_Window_LetsGroupsWait) {
  // At most half of the last four turns, and one more.
  ParityChoice choice({.window = 4, .alpha = 1}, {9, 9}, {100, 1});
  EXPECT_EQ(Take(choice, 9), (Turns{0, 0, 0, 1, 1, 0, 0, 0, 1}));
}

TEST(ParityChoice, Next_AllWait_IsTheGroupInTheLeastNeed) {
  ParityChoice choice({.window = 3, .alpha = 0.1}, {9, 9}, {5, 3});
  EXPECT_EQ(Take(choice, 4), (Turns{0, 1, 1, 1}));
}

TEST(ParityChoice, Exhaust_AllGroups_Ends) {
  for (const uint32_t window : {0, 3}) {
    ParityChoice choice({.window = window, .alpha = 0.1}, {9, 9, 9}, {5, 6, 0});
    choice.Exhaust(1);
    EXPECT_EQ(choice.Next(), 0u);
    choice.Exhaust(0);
    EXPECT_EQ(choice.Next(), 2u);
    choice.Exhaust(2);
    EXPECT_EQ(choice.Next(), std::nullopt);
  }
}

TEST(ParityChoice, Next_RatiosAndAGroupWithoutText_TakesItLast) {
  ParityChoice choice({.ratios = {1, 1}}, {0, 10}, {0, 1});
  EXPECT_EQ(choice.Next(), 1u);
  choice.Exhaust(1);
  EXPECT_EQ(choice.Next(), 0u);
}

}  // namespace
}  // namespace cairn::corpus
