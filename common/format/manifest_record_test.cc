#include "common/format/manifest_record.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
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

Manifest WithHistories() {
  Manifest manifest = SmallManifest();
  manifest.histories.clear();
  manifest.object_histories.clear();
  for (uint32_t i = 0; i < manifest.tensors.size(); ++i) {
    manifest.histories.push_back({9 + i, 1, 2, 0.5f, 0.25f, {uint64_t{i} << 40}, 3});
  }
  std::string last;
  for (const ManifestObject& object : manifest.objects) {
    if (object.name != last) manifest.object_histories.push_back({7, 0, 1, 0, 0, {1, 2, uint64_t{3} << 60}, 4});
    last = object.name;
  }
  return manifest;
}

TEST(ManifestRecordTest, ReadManifestRecord_Histories_ComeBack) {
  const auto back = ThereAndBack(WithHistories());
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(*back, WithHistories());
}

TEST(ManifestRecordTest, ReadManifestRecord_HistoriesOfAnEarlierVersion_HaveNoEarlierValues) {
  v1::ManifestRecord record;
  WriteManifestRecord(WithHistories(), record);
  for (v1::HistoryColumns* columns : {record.mutable_histories(), record.mutable_object_histories()}) {
    columns->clear_earlier_values();
    columns->clear_last_movements();
    columns->clear_returns();
  }
  const auto back = ReadManifestRecord(record);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->histories[1], (TensorHistory{10, 1, 2, 0.5f}));
}

TEST(ManifestRecordTest, ReadManifestRecord_HistoriesOfAnotherLength_AreRefused) {
  for (const auto& spoil : std::vector<void (*)(v1::HistoryColumns&)>{
           [](v1::HistoryColumns& c) { c.add_changes(1); }, [](v1::HistoryColumns& c) { c.add_earlier_values(1); },
           [](v1::HistoryColumns& c) { c.clear_earlier_values(); }, [](v1::HistoryColumns& c) { c.add_returns(1); },
           [](v1::HistoryColumns& c) { c.clear_last_movements(); }}) {
    v1::ManifestRecord record;
    WriteManifestRecord(WithHistories(), record);
    spoil(*record.mutable_object_histories());
    EXPECT_TRUE(HasReason(ReadManifestRecord(record).status(), Reason::kManifestCorrupt));
  }
}

}  // namespace
}  // namespace cairn
