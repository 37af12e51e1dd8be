#include "agent/session/save_image.h"

#include <gtest/gtest.h>

#include "agent/testing/layouts.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

using testing::MakeLayout;
using testing::MakeWritePlan;
using testing::Object;
using testing::Whole;

TEST(SaveImageTest, Plan_ThatContradictsItsLayout_IsRefused) {
  const RankLayoutPtr layout = MakeLayout({Whole("a", DType::kFloat32, {100})}, {Object("o", 4096)});
  const v1::WritePlan good = MakeWritePlan(*layout, 0, {{0, 1}}, "p");
  const auto image = MakeSaveImage(layout, good);
  ASSERT_TRUE(image.ok()) << image.status();
  EXPECT_EQ((*image)->slab_offset[0], good.files(0).header_bytes());
  EXPECT_EQ((*image)->slab_offset[1], good.files(0).header_bytes() + 400);
  EXPECT_EQ((*image)->slab_bytes % 4096, 0u);
  v1::WritePlan bad = good;
  bad.mutable_files(0)->set_data_bytes(1);
  EXPECT_FALSE(MakeSaveImage(layout, bad).ok());
  bad = good;
  bad.mutable_files(0)->set_header_bytes(4096 * 7);
  EXPECT_FALSE(MakeSaveImage(layout, bad).ok());
  bad = good;
  bad.mutable_files(0)->add_items(5);
  EXPECT_FALSE(MakeSaveImage(layout, bad).ok());
  bad = good;
  bad.mutable_files(0)->set_name("../../etc/passwd");
  EXPECT_FALSE(MakeSaveImage(layout, bad).ok());
  bad = good;
  bad.set_layout_digest("another");
  EXPECT_TRUE(HasReason(MakeSaveImage(layout, bad).status(), Reason::kLayoutChanged));
}

}  // namespace
}  // namespace cairn
