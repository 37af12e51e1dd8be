#include "common/status/fault.h"

#include <gtest/gtest.h>

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
}

}  // namespace
}  // namespace cairn
