#include "agent/session/rank_layout.h"

#include <gtest/gtest.h>

#include <string>

#include "agent/session/save_image.h"
#include "agent/testing/layouts.h"
#include "common/base/digest.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

using testing::Whole;

TEST(RankLayoutTest, Bytes_OfAnotherDigest_AreRefused) {
  EXPECT_TRUE(HasReason(ParseRankLayout("wrong", "", 0).status(), Reason::kBadRequest));
  EXPECT_TRUE(ParseRankLayout(Digest(""), "", 0).ok()) << "a rank that declares nothing";
}

TEST(RankLayoutTest, Layout_WithFaults_IsForwardedButNeverWritten) {
  const auto fault = [](std::string bytes) {
    const auto layout = ParseRankLayout(Digest(bytes), bytes, 0);
    if (!layout.ok()) return layout.status();
    v1::WritePlan plan;
    plan.set_layout_digest((*layout)->digest);
    EXPECT_EQ(MakeSaveImage(*layout, plan).status(), (*layout)->fault);
    return (*layout)->fault;
  };
  EXPECT_TRUE(HasReason(fault("garbage"), Reason::kBadRequest));
  EXPECT_TRUE(HasReason(fault(testing::SerializeLayout({testing::Tensor("a", DType::kFloat32, {4}, {2}, {3})}, {})),
                        Reason::kShardOutOfBounds));
  EXPECT_TRUE(HasReason(fault(testing::SerializeLayout({Whole("a", DType::kFloat64, {int64_t{1} << 62})}, {})),
                        Reason::kShapeOverflow));
  EXPECT_TRUE(HasReason(fault(testing::SerializeLayout({Whole("a\n", DType::kFloat64, {1})}, {})), Reason::kBadName));
  EXPECT_TRUE(
      HasReason(fault(testing::SerializeLayout({Whole("a", DType::kUnspecified, {1})}, {})), Reason::kBadDtype));
}

}  // namespace
}  // namespace cairn
