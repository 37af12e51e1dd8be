#include "common/format/manifest.h"

#include <gtest/gtest.h>

#include "common/format/testing/small_manifest.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

TEST(ManifestTest, PlaceItems_ItemsInAnyOrder_PacksByNumber) {
  const Manifest manifest = SmallManifest();
  EXPECT_EQ(manifest.shards[0].file_offset, 4096u);
  EXPECT_EQ(manifest.objects[0].file_offset, 4096u + 16);
  EXPECT_EQ(manifest.shards[2].file_offset, 4096u + 16 + 4096);
  EXPECT_EQ(manifest.files[0].data_bytes, 16u + 4096 + 32);
  EXPECT_EQ(manifest.shards[1].file_offset, 8192u + 32);
  EXPECT_EQ(manifest.path_of(manifest.files[1]), "000000000042/0002/rank00001-bin00.safetensors");
}

TEST(ManifestTest, PlaceItems_TwoItemsAtOnePlace_AreRefused) {
  Manifest manifest = SmallManifest();
  manifest.shards[3].item = 1;
  EXPECT_TRUE(HasReason(manifest.PlaceItems(), Reason::kManifestCorrupt));
}

}  // namespace
}  // namespace cairn
