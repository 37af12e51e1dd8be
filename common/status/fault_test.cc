#include "common/status/fault.h"

#include <gtest/gtest.h>

#include <vector>

namespace cairn {
namespace {

TEST(FaultListTest, ToStatus_NoFault_IsOk) { EXPECT_TRUE(FaultList().ToStatus().ok()); }

TEST(FaultListTest, ToStatus_ManyFaults_AreCountedAndCapped) {
  FaultList list(3);
  for (int i = 0; i < 10; ++i) {
    list.Add({Reason::kShardGap, "w", {1, 2}, {}, {}, "w: nobody holds row " + std::to_string(i)});
  }
  EXPECT_EQ(list.faults().size(), 3u);
  const absl::Status status = list.ToStatus();
  EXPECT_EQ(ReasonOf(status), Reason::kShardGap);
  EXPECT_EQ(status.message(), "w: nobody holds row 0; w: nobody holds row 1; w: nobody holds row 2; and 7 more");
  EXPECT_EQ(MetadataOf(status).at("faults"), "10");
  EXPECT_EQ(MetadataOf(status).at("ranks"), "1, 2");
  EXPECT_EQ(MetadataOf(status).at("tensor"), "w");
}

TEST(FaultListTest, RanksText_OneOrSeveral_HasTheFormThatFits) {
  EXPECT_EQ(RanksText(std::vector<int>{3}), "rank 3");
  EXPECT_EQ(RanksText(std::vector<int>{0, 1}), "ranks 0, 1");
}

}  // namespace
}  // namespace cairn
