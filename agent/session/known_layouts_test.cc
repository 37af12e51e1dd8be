#include "agent/session/known_layouts.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "agent/testing/layouts.h"

namespace cairn {
namespace {

RankLayoutPtr Layout(int number) {
  return testing::MakeLayout({testing::Whole(absl::StrCat("t", number), DType::kFloat32, {8})}, {});
}

TEST(KnownLayoutsTest, IdleLayouts_BeyondTheEighth_AreForgottenFromTheOldest) {
  KnownLayouts layouts;
  std::vector<std::string> digests;
  for (int i = 0; i < 10; ++i) {
    digests.push_back(Layout(i)->digest);
    layouts.Add(Layout(i), [](const std::string&) { return false; });
  }
  EXPECT_EQ(layouts.Find(digests[1]), nullptr);
  for (size_t i = 2; i < 10; ++i) EXPECT_NE(layouts.Find(digests[i]), nullptr) << i;
}

TEST(KnownLayoutsTest, LayoutInUse_WhateverIsAddedLater_IsKept) {
  KnownLayouts layouts;
  const std::string used = Layout(0)->digest;
  for (int i = 0; i < 30; ++i) layouts.Add(Layout(i), [&](const std::string& digest) { return digest == used; });
  EXPECT_NE(layouts.Find(used), nullptr);
}

TEST(KnownLayoutsTest, Add_LayoutThatIsKnown_CountsAsTheNewest) {
  KnownLayouts layouts;
  const auto idle = [](const std::string&) { return false; };
  for (int i = 0; i < 8; ++i) layouts.Add(Layout(i), idle);
  layouts.Add(Layout(0), idle);
  layouts.Add(Layout(8), idle);
  EXPECT_NE(layouts.Find(Layout(0)->digest), nullptr);
  EXPECT_EQ(layouts.Find(Layout(1)->digest), nullptr);
}

}  // namespace
}  // namespace cairn
