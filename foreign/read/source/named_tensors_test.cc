#include "foreign/read/source/named_tensors.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "foreign/read/source/foreign_file.h"

namespace cairn {
namespace {

StridedTensor TensorAt(uint64_t offset, const Shape& shape, const Shape& strides, DType dtype = DType::kFloat32) {
  return {dtype, shape, strides, offset};
}

class NamedTensorsTest : public testing::Test {
 protected:
  // Makes the checkpoint of a file with 1000 bytes.
  Manifest Finish() {
    const std::string path = std::string(testing::TempDir()) + "/named_tensors";
    std::ofstream(path) << std::string(1000, 'x');
    const auto file = ForeignFile::Open(path);
    EXPECT_TRUE(file.ok()) << file.status();
    ForeignManifest manifest("test");
    manifest.AddFile(*file);
    std::move(tensors_).MoveTo(manifest);
    auto finished = std::move(manifest).Finish();
    EXPECT_TRUE(finished.ok()) << finished.status();
    return *std::move(finished);
  }

  NamedTensors tensors_;
};

TEST_F(NamedTensorsTest, AddWhole_SamePlaceAndForm_IsASecondName) {
  ASSERT_TRUE(tensors_.AddWhole("a", TensorAt(0, {2, 3}, {3, 1}), 0).ok());
  ASSERT_TRUE(tensors_.AddWhole("b", TensorAt(0, {2, 3}, {3, 1}), 0).ok());
  ASSERT_TRUE(tensors_.AddAlias("c", "b").ok());
  ASSERT_TRUE(tensors_.AddWhole("d", TensorAt(24, {2, 3}, {3, 1}), 0).ok());
  const Manifest manifest = Finish();
  EXPECT_EQ(manifest.tensors.size(), 2u);
  const std::vector<std::pair<std::string, std::string>> aliases = {{"b", "a"}, {"c", "a"}};
  EXPECT_EQ(manifest.aliases, aliases);
}

TEST_F(NamedTensorsTest, AddWhole_Transposed_IsReadColumnByColumn) {
  ASSERT_TRUE(tensors_.AddWhole("t", TensorAt(0, {2, 3}, {1, 2}), 0).ok());
  EXPECT_EQ(Finish().tensors[0].shard_count, 3u);
}

TEST_F(NamedTensorsTest, Add_NameIsTakenOrNone_IsRefused) {
  ASSERT_TRUE(tensors_.Add("w", DType::kInt8, {2}).ok());
  ASSERT_TRUE(tensors_.AddAlias("v", "w").ok());
  EXPECT_TRUE(HasReason(tensors_.Add("w", DType::kInt8, {2}), Reason::kNameCollision));
  EXPECT_TRUE(HasReason(tensors_.AddAlias("v", "w"), Reason::kNameCollision));
  EXPECT_TRUE(HasReason(tensors_.AddWhole("v", TensorAt(0, {1}, {1}), 0), Reason::kNameCollision));
  ASSERT_TRUE(tensors_.AddValue("step", 0, 100).ok());
  EXPECT_TRUE(HasReason(tensors_.Add("step", DType::kInt8, {2}), Reason::kNameCollision));
  EXPECT_TRUE(HasReason(tensors_.AddValue("w", 0, 100), Reason::kNameCollision));
  EXPECT_TRUE(HasReason(tensors_.Add("", DType::kInt8, {2}), Reason::kBadName));
}

// Tied weights of which one is transposed, slices of one flat buffer, an expanded value.
TEST_F(NamedTensorsTest, AddWhole_ViewsOfTheSameBytes_AreTensorsOfTheirOwn) {
  ASSERT_TRUE(tensors_.AddWhole("expanded", TensorAt(96, {5}, {0}), 0).ok());
  ASSERT_TRUE(tensors_.AddWhole("flat", TensorAt(0, {25}, {1}), 0).ok());
  ASSERT_TRUE(tensors_.AddWhole("slice", TensorAt(40, {2, 3}, {3, 1}), 0).ok());
  ASSERT_TRUE(tensors_.AddWhole("transposed", TensorAt(40, {3, 2}, {1, 3}), 0).ok());
  const Manifest manifest = Finish();
  std::vector<std::string> found;
  for (const ManifestTensor& tensor : manifest.tensors) {
    for (uint32_t s = 0; s < tensor.shard_count; ++s) {
      const ManifestShard& shard = manifest.shards[tensor.first_shard + s];
      found.push_back(absl::StrCat(tensor.name, " ", shard.file_offset, " ", shard.bytes));
    }
  }
  EXPECT_EQ(found, (std::vector<std::string>{"expanded 96 4", "expanded 96 4", "expanded 96 4", "expanded 96 4",
                                             "expanded 96 4", "flat 0 100", "slice 40 24", "transposed 40 12",
                                             "transposed 52 12"}));
}

TEST_F(NamedTensorsTest, AddWhole_MorePiecesThanReadsAreWorth_IsRefused) {
  EXPECT_TRUE(HasReason(tensors_.AddWhole("w", TensorAt(0, {65537}, {0}), 0), Reason::kUnsupported));
  absl::Status status;
  int added = 0;
  for (; status.ok() && added < 100; ++added) {
    status = tensors_.AddWhole(absl::StrCat("w", added), TensorAt(4 * static_cast<uint64_t>(added), {65536}, {0}), 0);
  }
  EXPECT_TRUE(HasReason(status, Reason::kUnsupported)) << status;
  EXPECT_EQ(added, 65);
}

}  // namespace
}  // namespace cairn
