#include "common/format/manifest_record.h"

#include <gtest/gtest.h>

#include <vector>

#include "common/format/testing/small_manifest.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

absl::StatusOr<Manifest> ThereAndBack(const Manifest& manifest) {
  v1::ManifestRecord record;
  WriteManifestRecord(manifest, record);
  return ReadManifestRecord(record);
}

TEST(ManifestRecordTest, ReadManifestRecord_WrittenManifest_ComesBack) {
  const auto back = ThereAndBack(SmallManifest());
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(*back, SmallManifest());
}

TEST(ManifestRecordTest, ReadManifestRecord_AMetricWithoutAValue_IsRefused) {
  v1::ManifestRecord record;
  WriteManifestRecord(SmallManifest(), record);
  record.add_metric_names("cost");
  EXPECT_TRUE(HasReason(ReadManifestRecord(record).status(), Reason::kManifestCorrupt));
}

TEST(ManifestRecordTest, ReadManifestRecord_TwoItemsAtOnePlace_AreRefused) {
  Manifest manifest = SmallManifest();
  manifest.shards[3].item = 1;
  EXPECT_TRUE(HasReason(ThereAndBack(manifest).status(), Reason::kManifestCorrupt));
}

TEST(ManifestRecordTest, ReadManifestRecord_BadNamesAndPlaces_AreRefused) {
  for (const auto& spoil : std::vector<void (*)(Manifest&)>{
           [](Manifest& m) { m.files[0].name = "../../etc/passwd"; }, [](Manifest& m) { m.tensors[0].name = ""; },
           [](Manifest& m) { std::swap(m.tensors[0].name, m.tensors[1].name); }, [](Manifest& m) { m.dims[14] = 5; },
           [](Manifest& m) { m.dims[12] = -1; }, [](Manifest& m) { m.dims[5] = 7; },
           [](Manifest& m) { m.objects[0].bytes = 5000; }, [](Manifest& m) { m.shards[0].file = 9; },
           [](Manifest& m) { m.rank_layout[0] = 2; }, [](Manifest& m) { m.files[0].header_bytes = 100; },
           [](Manifest& m) { m.tensors[1].shard_count = 9; }}) {
    Manifest manifest = SmallManifest();
    spoil(manifest);
    if (manifest.tensors[1].shard_count == 9) manifest.shards.resize(11), manifest.dims.resize(64);
    const auto back = ThereAndBack(manifest);
    EXPECT_TRUE(HasReason(back.status(), Reason::kManifestCorrupt)) << back.status();
  }
}

}  // namespace
}  // namespace cairn
