#include "common/status/fault.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace cairn {
namespace {

TEST(FaultListTest, ToStatus_NoFault_IsOk) { EXPECT_TRUE(FaultList().ToStatus().ok()); }

TEST(FaultListTest, ToStatus_ManyFaults_AreCountedAndCapped) {
  FaultList list;
  for (int i = 0; i < 100; ++i) {
    list.Add({Reason::kShardGap, "w", {1, 2}, {}, {}, std::string(200, static_cast<char>('a' + i % 26))});
  }
  EXPECT_EQ(list.faults().size(), FaultList::kMostKept);
  const absl::Status status = list.ToStatus();
  EXPECT_EQ(ReasonOf(status), Reason::kShardGap);
  EXPECT_EQ(status.message(), std::string(200, 'a') + "; " + std::string(200, 'b') + "; and 98 more");
  EXPECT_EQ(MetadataOf(status).at("faults"), "100");
  EXPECT_EQ(MetadataOf(status).at("ranks"), "1, 2");
  EXPECT_EQ(MetadataOf(status).at("tensor"), "w");
}

TEST(FaultListTest, RanksText_OneOrSeveral_HasTheFormThatFits) {
  EXPECT_EQ(RanksText(std::vector<int>{3}), "rank 3");
  EXPECT_EQ(RanksText(std::vector<int>{0, 1}), "ranks 0, 1");
}

}  // namespace
}  // namespace cairn
