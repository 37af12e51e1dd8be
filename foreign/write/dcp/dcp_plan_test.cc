#include "foreign/write/dcp/dcp_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/status/reason.h"
#include "foreign/read/dcp/dcp_metadata.h"
#include "foreign/write/testing/manifest_of.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using testing::ManifestOf;
using ::testing::Pair;

ExportedValue ValueOf(const std::string& name) {
  ExportedValue value;
  value.name = name;
  value.path.emplace_back().kind = ObjectValue::Kind::kText;
  value.path.back().text = name;
  return value;
}

// The import checks that chunks make up their tensors and that entries do not overlap.
DcpMetadata Read(const DcpExportPlan& plan) {
  auto metadata = ReadDcpMetadata(plan.metadata, "test");
  EXPECT_TRUE(metadata.ok()) << metadata.status();
  return metadata.ok() ? *std::move(metadata) : DcpMetadata();
}

TEST(DcpPlanTest, MakeDcpExportPlan_LargeTensors_AreCutIntoChunks) {
  const Manifest manifest = ManifestOf({{"a", DType::kFloat32, {5'000, 1'000}},
                                        {"b", DType::kFloat64, {3, 2, 1'500'000}},
                                        {"c", DType::kInt8, {}},
                                        {"d", DType::kInt8, {4, 0}}});
  const auto plan = MakeDcpExportPlan(manifest, {}, {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  const DcpMetadata metadata = Read(*plan);
  ASSERT_EQ(metadata.tensors.size(), 4u);
  ASSERT_EQ(plan->files.size(), 1u);
  std::vector<int> chunks(4);
  uint64_t end = 0;
  for (const DcpExportEntry& entry : plan->files[0].entries) {
    ++chunks[entry.tensor];
    EXPECT_LE(static_cast<uint64_t>(entry.box.size()) * 8, 2 * kDcpChunkBytes);
    EXPECT_EQ(entry.offset % 64, 0u);
    EXPECT_GE(entry.offset, end);
    end = entry.offset + entry.bytes;
  }
  EXPECT_THAT(chunks, ElementsAre(4, 12, 1, 1));
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(plan->files[0].entries[i].box.shape[0], 1250) << "so two or four ranks need no chunk in common";
  }
  EXPECT_EQ(plan->files[0].bytes, end);
}

TEST(DcpPlanTest, MakeDcpExportPlan_SmallFiles_HoldAFewEntriesEach) {
  const Manifest manifest = ManifestOf({{"a", DType::kFloat32, {1000}}, {"b", DType::kFloat32, {1000}}});
  ExportOptions options;
  options.max_shard_bytes = 7000;
  const auto plan = MakeDcpExportPlan(manifest, options, {ValueOf("v")});
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->files.size(), 2u);
  EXPECT_EQ(plan->files[1].name, "__1_0.distcp");
  EXPECT_THAT(Read(*plan).files, ::testing::UnorderedElementsAre("__0_0.distcp", "__1_0.distcp"));
  EXPECT_THAT(Read(*plan).values, ElementsAre("v"));
}

TEST(DcpPlanTest, MakeDcpExportPlan_TiedWeight_IsASecondNameOfTheSameBytes) {
  Manifest manifest = ManifestOf({{"b", DType::kFloat32, {5'000'000}}});
  manifest.aliases = {{"a", "b"}, {"c", "b"}, {"out", "gone"}};
  ExportOptions options;
  options.choice.exclude = {"c"};
  const auto plan = MakeDcpExportPlan(manifest, options, {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->total_bytes, 20'000'000u);
  const DcpMetadata metadata = Read(*plan);
  ASSERT_EQ(metadata.tensors.size(), 1u);
  EXPECT_EQ(metadata.tensors[0].name, "a");
  EXPECT_THAT(metadata.aliases, ElementsAre(Pair("b", "a")));
  EXPECT_EQ(metadata.entries.size(), 4u);
}

TEST(DcpPlanTest, MakeDcpExportPlan_OwnNameOfATiedWeightIsLeftOut_ItsOtherNamesAreWritten) {
  Manifest manifest = ManifestOf({{"b", DType::kFloat32, {2}}});
  manifest.aliases = {{"c", "b"}, {"d", "b"}};
  ExportOptions options;
  options.choice.exclude = {"b"};
  const auto plan = MakeDcpExportPlan(manifest, options, {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  const DcpMetadata metadata = Read(*plan);
  ASSERT_EQ(metadata.tensors.size(), 1u);
  EXPECT_EQ(metadata.tensors[0].name, "c");
  EXPECT_THAT(metadata.aliases, ElementsAre(Pair("d", "c")));
}

TEST(DcpPlanTest, MakeDcpExportPlan_TwoOfOneName_AreRefused) {
  const Manifest manifest = ManifestOf({{"a", DType::kFloat32, {2}}});
  EXPECT_TRUE(HasReason(MakeDcpExportPlan(manifest, {}, {ValueOf("a")}).status(), Reason::kNameCollision));
  EXPECT_TRUE(HasReason(MakeDcpExportPlan(Manifest(), {}, {}).status(), Reason::kBadRequest));
}

}  // namespace
}  // namespace cairn
