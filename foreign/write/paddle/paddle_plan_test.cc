// Reads what the plan would write with the readers of `import`, which real files of Paddle have tested.
#include "foreign/write/paddle/paddle_plan.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "common/base/random_id.h"
#include "common/status/reason.h"
#include "foreign/read/paddle/paddle_file.h"
#include "foreign/read/paddle/paddle_metadata.h"
#include "foreign/write/testing/manifest_of.h"

namespace cairn {
namespace {

using testing::ManifestOf;

// The bytes of a file whose tensors have the numbers 1, 2, ... in all their bytes.
std::string BytesOf(const ExportPlan& plan, const ExportFile& file) {
  std::string bytes;
  char filling = 0;
  for (const ExportPiece& piece : file.pieces) {
    const PlainTensor& tensor = plan.tensors[piece.tensor].plain;
    bytes += piece.before;
    bytes.append(static_cast<size_t>(*ElementCount(tensor.shape) * BytesOf(tensor.dtype)), ++filling);
  }
  return bytes + file.after;
}

TEST(PaddlePlanTest, MakePaddleExportPlan_ItsFiles_HoldTheTensorsWhereTheySay) {
  const Manifest manifest = ManifestOf({{"a.bool", DType::kBool, {3}},
                                        {"b.empty", DType::kFloat32, {0, 4}},
                                        {"c.half", DType::kBfloat16, {2, 3}},
                                        {"d.large", DType::kFloat64, {70'000}},
                                        {"e.scalar", DType::kInt64, {}},
                                        {"f.wide", DType::kComplex128, {1, 2, 3, 4, 5}}});
  const auto plan = MakePaddleExportPlan(manifest, {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->files.size(), 1u);
  const ExportFile& file = plan->files[0];
  EXPECT_EQ(file.name, "0_0.distcp");
  const std::string bytes = BytesOf(*plan, file);
  EXPECT_EQ(bytes.size(), file.bytes());
  const std::string path = ::testing::TempDir() + "/" + RandomToken(8);
  std::ofstream(path) << bytes;
  const auto opened = ForeignFile::Open(path);
  ASSERT_TRUE(opened.ok()) << opened.status();
  const auto read = PaddleFile::Open(*opened);
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->document().Size(read->document().root()), manifest.tensors.size());
  char filling = 0;
  for (const ManifestTensor& expected : manifest.tensors) {
    ++filling;
    const auto value = read->document().Find(read->document().root(), expected.name);
    ASSERT_TRUE(value.has_value()) << expected.name;
    const auto tensor = read->Tensor(*value);
    ASSERT_TRUE(tensor.ok() && tensor->has_value()) << expected.name << ": " << tensor.status();
    EXPECT_EQ((*tensor)->dtype, expected.dtype) << expected.name;
    EXPECT_EQ((*tensor)->shape, expected.global_shape) << expected.name;
    const uint64_t count = static_cast<uint64_t>(*ElementCount(expected.global_shape) * BytesOf(expected.dtype));
    EXPECT_EQ(bytes.substr((*tensor)->offset, count), std::string(count, filling)) << expected.name;
  }
}

TEST(PaddlePlanTest, MakePaddleExportPlan_SeveralFiles_AreNamedByTheMetadata) {
  ExportOptions options;
  options.max_shard_bytes = 1000;
  const Manifest manifest = ManifestOf(
      {{"l.10", DType::kFloat32, {100}}, {"l.2", DType::kFloat32, {10, 20}}, {"l.3", DType::kBfloat16, {300}}});
  const auto plan = MakePaddleExportPlan(manifest, options);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->index_name, "0.metadata");
  const auto metadata = ReadPaddleMetadata(plan->index, "0.metadata");
  ASSERT_TRUE(metadata.ok()) << metadata.status();
  ASSERT_EQ(metadata->tensors.size(), 3u);
  EXPECT_EQ(metadata->tensors[1].name, "l.2");
  EXPECT_EQ(metadata->tensors[1].global_shape, (Shape{10, 20}));
  EXPECT_EQ(metadata->tensors[2].dtype, DType::kBfloat16);
  ASSERT_EQ(metadata->shards.size(), 3u);
  for (const PaddleShard& shard : metadata->shards) {
    const std::string& file = metadata->files[shard.file];
    const bool second = metadata->tensors[shard.tensor].name == "l.10";
    EXPECT_EQ(file, second ? "1_0.distcp" : metadata->tensors[shard.tensor].name == "l.2" ? "0_0.distcp" : file);
    EXPECT_EQ(metadata->box_of(shard).shape, metadata->tensors[shard.tensor].global_shape);
  }
}

TEST(PaddlePlanTest, MakePaddleExportPlan_DtypeThatPaddleLacks_IsRefusedByName) {
  for (const DType dtype : {DType::kUint16, DType::kFloat8E4m3fn, DType::kUint64}) {
    const auto plan = MakePaddleExportPlan(ManifestOf({{"x", dtype, {2}}}), {});
    EXPECT_EQ(ReasonOf(plan.status()), Reason::kUnsupported);
    EXPECT_NE(plan.status().message().find("Paddle has no dtype for x ("), absl::string_view::npos) << plan.status();
  }
}

}  // namespace
}  // namespace cairn
