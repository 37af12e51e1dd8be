#include "foreign/read/source/foreign_manifest.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "common/base/random_id.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

using Dims = std::vector<int64_t>;

class ForeignManifestTest : public testing::Test {
 protected:
  ForeignManifestTest() {
    directory_ = testing::TempDir() + "/foreign-" + RandomToken(6);
    std::filesystem::create_directories(directory_);
  }
  ~ForeignManifestTest() override { std::filesystem::remove_all(directory_); }

  ForeignFile File(const std::string& name, size_t bytes) {
    std::ofstream(directory_ + "/" + name) << std::string(bytes, 'x');
    return *ForeignFile::Open(directory_ + "/" + name);
  }

  std::string directory_;
  ForeignManifest manifest_{"test"};
};

TEST_F(ForeignManifestTest, Finish_PiecesInAnyOrder_AreSortedAndNumberedByTheirPlace) {
  const uint32_t first = manifest_.AddFile(File("first", 100));
  const uint32_t second = manifest_.AddFile(File("second", 100));
  const uint32_t a = manifest_.AddTensor("a", DType::kFloat32, {4, 2});
  const uint32_t b = manifest_.AddTensor("b", DType::kUint8, {10});
  manifest_.AddPiece(b, Dims{0}, Dims{10}, first, 50);
  manifest_.AddPiece(a, Dims{2, 0}, Dims{2, 2}, first, 0);
  manifest_.AddPiece(a, Dims{0, 0}, Dims{2, 2}, second, 20);
  manifest_.AddValue("object", first, 20, 30);
  manifest_.AddAlias("z", "a");
  manifest_.AddAlias("y", "a");
  const auto manifest = std::move(manifest_).Finish();
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  ASSERT_EQ(manifest->shards.size(), 3);
  EXPECT_EQ(manifest->shards[0].file, second) << "the piece of `a` with the smaller offset";
  EXPECT_EQ(manifest->shards[0].bytes, 16);
  EXPECT_EQ(manifest->shards[1].file, first);
  EXPECT_EQ(manifest->tensors[a].first_shard, 0);
  EXPECT_EQ(manifest->tensors[a].shard_count, 2);
  EXPECT_EQ(manifest->tensors[b].first_shard, 2);
  // In the first file lie a piece, the object, and another piece.
  EXPECT_EQ(manifest->shards[1].item, 0);
  ASSERT_EQ(manifest->objects.size(), 1);
  EXPECT_EQ(manifest->objects[0].item, 1);
  EXPECT_EQ(manifest->shards[2].item, 2);
  EXPECT_EQ(manifest->shards[0].item, 0);
  EXPECT_EQ(manifest->aliases[0].first, "y");
}

TEST_F(ForeignManifestTest, AddPiece_AnEmptyBox_IsLeftOut) {
  const uint32_t file = manifest_.AddFile(File("file", 10));
  manifest_.AddPiece(manifest_.AddTensor("a", DType::kFloat32, {0, 3}), Dims{0, 0}, Dims{0, 3}, file, 1000);
  const auto manifest = std::move(manifest_).Finish();
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_TRUE(manifest->shards.empty());
  EXPECT_EQ(manifest->tensors.size(), 1);
}

TEST_F(ForeignManifestTest, Finish_APieceBehindTheEndOfItsFile_IsTruncated) {
  const uint32_t file = manifest_.AddFile(File("file", 40));
  const uint32_t a = manifest_.AddTensor("a", DType::kFloat32, {10});
  manifest_.AddPiece(a, Dims{0}, Dims{10}, file, 1);
  const absl::Status status = std::move(manifest_).Finish().status();
  EXPECT_TRUE(HasReason(status, Reason::kFileTruncated)) << status;
  EXPECT_EQ(MetadataOf(status)["tensor"], "a");
}

TEST_F(ForeignManifestTest, Finish_AnOffsetThatWouldOverflow_IsTruncated) {
  const uint32_t file = manifest_.AddFile(File("file", 40));
  manifest_.AddValue("object", file, UINT64_MAX - 5, 10);
  EXPECT_TRUE(HasReason(std::move(manifest_).Finish().status(), Reason::kFileTruncated));
}

TEST_F(ForeignManifestTest, Finish_PiecesThatShareBytes_AreRefusedUnlessTheFilesDiffer) {
  const ForeignFile file = File("file", 100);
  const ForeignFile other = File("other", 100);
  const auto finish = [&](bool apart) {
    ForeignManifest manifest("test");
    const uint32_t numbers[] = {manifest.AddFile(file), manifest.AddFile(other)};
    const uint32_t a = manifest.AddTensor("a", DType::kUint8, {50});
    const uint32_t b = manifest.AddTensor("b", DType::kUint8, {50});
    manifest.AddPiece(a, Dims{0}, Dims{50}, numbers[0], 0);
    manifest.AddPiece(b, Dims{0}, Dims{50}, numbers[apart ? 1 : 0], 49);
    return std::move(manifest).Finish().status();
  };
  EXPECT_TRUE(HasReason(finish(false), Reason::kBadForeignFile));
  EXPECT_TRUE(finish(true).ok());
}

TEST_F(ForeignManifestTest, AllowSharedBytes_Pieces_MayShareThemWithPiecesAlone) {
  const ForeignFile file = File("file", 100);
  const auto finish = [&](bool object) {
    ForeignManifest manifest("test");
    const uint32_t number = manifest.AddFile(file);
    manifest.AllowSharedBytes();
    const uint32_t a = manifest.AddTensor("a", DType::kUint8, {100});
    const uint32_t b = manifest.AddTensor("b", DType::kUint8, {10});
    manifest.AddPiece(a, Dims{0}, Dims{100}, number, 0);
    manifest.AddPiece(b, Dims{0}, Dims{10}, number, 20);
    if (object) manifest.AddValue("object", number, 90, 10);
    return std::move(manifest).Finish();
  };
  const auto manifest = finish(false);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(manifest->shards[0].item, 0);
  EXPECT_EQ(manifest->shards[1].item, 1);
  EXPECT_TRUE(HasReason(finish(true).status(), Reason::kBadForeignFile));
}

TEST_F(ForeignManifestTest, AllowSharedBytes_FarMoreBytesThanTheFileHas_IsRefused) {
  constexpr int64_t kBytes = int64_t{200} << 20;
  const std::string path = directory_ + "/large";
  std::ofstream(path).put('x');
  std::filesystem::resize_file(path, kBytes);
  const ForeignFile file = *ForeignFile::Open(path);
  const auto finish = [&](int views) {
    ForeignManifest manifest("test");
    const uint32_t number = manifest.AddFile(file);
    manifest.AllowSharedBytes();
    for (int i = 0; i < views; ++i) {
      manifest.AddPiece(manifest.AddTensor("v" + std::to_string(i), DType::kUint8, {kBytes}), Dims{0}, Dims{kBytes},
                        number, 0);
    }
    return std::move(manifest).Finish().status();
  };
  EXPECT_TRUE(finish(16).ok());
  EXPECT_TRUE(HasReason(finish(17), Reason::kUnsupported));
}

TEST_F(ForeignManifestTest, Finish_TheSourceIsWrittenAnew_HasAnotherDigest) {
  const auto digest = [&](std::string_view kind, size_t bytes, std::string_view description) {
    ForeignManifest manifest(kind);
    manifest.AddFile(File("file", bytes));
    manifest.AddDigest(description);
    return std::move(manifest).Finish()->plan_digest;
  };
  const ForeignFile file = File("file", 10);
  const auto of_file = [&](std::string_view kind, std::string_view description) {
    ForeignManifest manifest(kind);
    manifest.AddFile(file);
    manifest.AddDigest(description);
    return std::move(manifest).Finish()->plan_digest;
  };
  EXPECT_EQ(of_file("kind", "description"), of_file("kind", "description"));
  EXPECT_NE(of_file("kind", "description"), of_file("other", "description"));
  EXPECT_NE(of_file("kind", "description"), of_file("kind", "another"));
  EXPECT_NE(of_file("kind", "description"), digest("kind", 11, "description")) << "its length is another";
}

}  // namespace
}  // namespace cairn
