#include "coordinator/membership/layout_table.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace cairn {
namespace {

TEST(LayoutTableTest, Hold_ManyOthersComeAndGo_Stays) {
  LayoutTable table;
  std::vector<LayoutHold> current;
  HoldExactly(table, {"current", "", "current"}, current);
  EXPECT_EQ(current.size(), 1u);
  table.Add("current", 100);
  size_t dropped = 0;
  for (int i = 0; i < 10'000; ++i) {
    const std::string digest = std::to_string(i);
    {
      std::vector<LayoutHold> load;
      HoldExactly(table, {digest}, load);
      table.Add(digest, 10);
      EXPECT_TRUE(table.contains(digest));
    }
    dropped += table.TakeDropped().size();
    ASSERT_LE(table.size(), LayoutTable::kUnheldKept + 1);
  }
  EXPECT_TRUE(table.contains("current"));
  EXPECT_EQ(dropped + table.size(), 10'001u);
  EXPECT_TRUE(table.contains("9999")) << "the newest of those that nobody holds stay";
}

TEST(LayoutTableTest, Add_UnheldLayouts_AreBoundedByBytesToo) {
  LayoutTable table;
  table.Add("large", LayoutTable::kUnheldBytesKept);
  EXPECT_TRUE(table.contains("large"));
  table.Add("small", 1);
  EXPECT_FALSE(table.contains("large"));
  EXPECT_TRUE(table.contains("small"));
}

TEST(LayoutTableTest, Hold_OfWhatNeverCame_LeavesNothing) {
  LayoutTable table;
  for (int i = 0; i < 100; ++i) table.Hold(std::to_string(i));
  EXPECT_EQ(table.size(), 0u);
  EXPECT_TRUE(table.TakeDropped().empty());
}

TEST(LayoutTableTest, HoldExactly_HeldBeforeAndAfter_IsNeverLetGo) {
  LayoutTable table;
  std::vector<LayoutHold> holds;
  HoldExactly(table, {"a", "b"}, holds);
  table.Add("a", LayoutTable::kUnheldBytesKept + 1);
  HoldExactly(table, {"c", "a"}, holds);
  EXPECT_TRUE(table.contains("a"));
  HoldExactly(table, {}, holds);
  EXPECT_FALSE(table.contains("a"));
}

}  // namespace
}  // namespace cairn
