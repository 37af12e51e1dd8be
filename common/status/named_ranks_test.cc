#include "common/status/named_ranks.h"

#include <gtest/gtest.h>

#include <string>

#include "common/status/reason.h"

namespace cairn {
namespace {

std::vector<int> RanksOf(const std::string& text) {
  return RanksNamedIn(MakeError(Reason::kRankLate, "late", {{"ranks", text}}));
}

TEST(RanksNamedInTest, RanksNamedIn_ReadsRanksInTheirOrder) {
  EXPECT_EQ(RanksOf("3, 0, 12"), (std::vector<int>{3, 0, 12}));
}

TEST(RanksNamedInTest, RanksNamedIn_NoMetadata_IsEmpty) {
  EXPECT_EQ(RanksNamedIn(MakeError(Reason::kRankLate, "late")), std::vector<int>());
  EXPECT_EQ(RanksNamedIn(absl::OkStatus()), std::vector<int>());
}

TEST(RanksNamedInTest, RanksNamedIn_WhatIsNoRank_EndsTheList) {
  EXPECT_EQ(RanksOf("1, -2, 3"), std::vector<int>{1});
  EXPECT_EQ(RanksOf("and 5 more"), std::vector<int>());
  EXPECT_EQ(RanksOf(std::string(1001, '1')), std::vector<int>());
}

}  // namespace
}  // namespace cairn
