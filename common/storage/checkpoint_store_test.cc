#include "common/storage/checkpoint_store.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "common/rpc/reason.h"
#include "common/storage/checkpoint_path.h"

namespace cairn {
namespace {

class CheckpointStoreTest : public testing::Test {
 protected:
  CheckpointStoreTest() {
    std::string pattern = testing::TempDir() + "/store_XXXXXX";
    root_ = mkdtemp(pattern.data());
    storage_ = *PosixStorage::Open(root_, true);
  }
  ~CheckpointStoreTest() override { std::filesystem::remove_all(root_); }

  void Put(int64_t step, uint32_t attempt, const std::string& bytes) {
    ASSERT_TRUE(storage_->MakeDirectories(AttemptDirectory("a/b", step, attempt)).ok());
    ASSERT_TRUE(storage_->PutIfAbsent(VerdictPath("a/b", step, attempt), bytes).ok());
  }
  static std::string Commit(int64_t step, uint32_t attempt) {
    Manifest manifest;
    manifest.job = "a/b";
    manifest.step = step;
    manifest.attempt = attempt;
    manifest.world_size = 1;
    manifest.layout_digests = {std::string(32, 'd')};
    manifest.rank_layout = {0};
    manifest.nodes = {"n"};
    manifest.rank_node = {0};
    return EncodeVerdict(manifest);
  }
  static std::string Abort(int64_t step, uint32_t attempt) {
    return EncodeVerdict(Tombstone{
        .job = "a/b", .step = step, .attempt = attempt, .request_id = "r", .reason = "RANK_LATE", .message = "m"});
  }

  std::string root_;
  std::unique_ptr<PosixStorage> storage_;
};

TEST_F(CheckpointStoreTest, OnlyManifestsCount) {
  Put(10, 1, Commit(10, 1));
  Put(20, 1, Abort(20, 1));
  Put(20, 2, Commit(20, 2));
  Put(30, 1, Abort(30, 1));
  ASSERT_TRUE(storage_->MakeDirectories(AttemptDirectory("a/b", 40, 1)).ok());
  ASSERT_TRUE(storage_->MakeDirectories("a/b/other/000000000050").ok());
  CheckpointStore store(*storage_);
  const auto committed = store.ListCommitted("a/b");
  ASSERT_TRUE(committed.ok()) << committed.status();
  EXPECT_TRUE(committed->faults.empty());
  ASSERT_EQ(committed->manifests.size(), 2u);
  EXPECT_EQ(committed->manifests[1].step, 20);
  EXPECT_EQ(committed->manifests[1].attempt, 2u);
  EXPECT_EQ(store.ReadManifest("a/b", std::nullopt)->step, 20);
  EXPECT_EQ(store.ReadManifest("a/b", 10)->step, 10);
  EXPECT_EQ(store.Attempts("a/b")->size(), 5u);
}

TEST_F(CheckpointStoreTest, Absent_NamesTheLatest) {
  CheckpointStore store(*storage_);
  EXPECT_TRUE(HasReason(store.ReadManifest("a/b", std::nullopt).status(), Reason::kNotCommitted));
  EXPECT_TRUE(store.ListCommitted("no/such")->manifests.empty());
  Put(10, 1, Commit(10, 1));
  Put(30, 1, Abort(30, 1));
  const auto manifest = store.ReadManifest("a/b", 30);
  EXPECT_TRUE(HasReason(manifest.status(), Reason::kNotCommitted));
  EXPECT_EQ(manifest.status().message(), "a/b@30 has no committed checkpoint; the latest committed step is 10");
  EXPECT_TRUE(HasReason(store.ReadManifest("../x", 1).status(), Reason::kBadJobName));
}

TEST_F(CheckpointStoreTest, CorruptVerdict_IsNeverSkippedSilently) {
  Put(10, 1, Commit(10, 1));
  std::string bytes = Commit(20, 1);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  Put(20, 1, bytes);
  CheckpointStore store(*storage_);
  EXPECT_TRUE(HasReason(store.ReadManifest("a/b", std::nullopt).status(), Reason::kManifestCorrupt));
  const auto committed = store.ListCommitted("a/b");
  EXPECT_EQ(committed->manifests.size(), 1u);
  ASSERT_EQ(committed->faults.size(), 1u);
  EXPECT_NE(std::string(committed->faults[0].message()).find("000000000020/0001.verdict"), std::string::npos);
}

}  // namespace
}  // namespace cairn
