#include "coordinator/server/catalog.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "common/base/fake_clock.h"
#include "common/rpc/reason.h"
#include "common/storage/attempt_owner.h"
#include "common/storage/checkpoint_path.h"
#include "coordinator/server/attempt_store.h"

namespace cairn {
namespace {

class CatalogTest : public testing::Test {
 protected:
  CatalogTest() {
    root_ = testing::TempDir() + "/catalog-XXXXXX";
    EXPECT_NE(mkdtemp(root_.data()), nullptr);
    storage_ = *PosixStorage::Open(root_, false);
    EXPECT_TRUE(storage_->MakeDirectories(".cairn").ok());
  }
  ~CatalogTest() override { std::filesystem::remove_all(root_); }

  Manifest SomeManifest(int64_t step, uint32_t attempt) {
    Manifest manifest;
    manifest.job = "demo";
    manifest.step = step;
    manifest.attempt = attempt;
    manifest.request_id = "request";
    manifest.world_size = 2;
    manifest.commit_time = absl::FromUnixSeconds(1700000000);
    return manifest;
  }
  absl::StatusOr<VerdictSummary> Put(int64_t step, uint32_t attempt) {
    const auto manifest = std::make_shared<const std::string>(EncodeVerdict(SomeManifest(step, attempt)));
    const auto bins = std::make_shared<const std::vector<BinFile>>();
    const std::string directory = AttemptDirectory("demo", step, attempt);
    EXPECT_TRUE(MakeAttemptDirectory(*storage_, directory, 1, "").ok());
    return attempts().Put("demo", {step, attempt, 1, manifest, bins, absl::OkStatus(), ""}).standing;
  }
  void Commit(int64_t step, uint32_t attempt) {
    const auto put = Put(step, attempt);
    ASSERT_TRUE(put.ok()) << put.status();
    EXPECT_TRUE(put->committed);
  }
  bool Exists(const std::string& path) { return std::filesystem::exists(root_ + "/" + path); }
  // As a coordinator that has just started.
  Catalog& catalog() {
    catalog_ = std::make_unique<Catalog>(*storage_);
    return *catalog_;
  }
  AttemptStore& attempts() {
    attempts_ = std::make_unique<AttemptStore>(*storage_, catalog(), clock_);
    return *attempts_;
  }
  absl::StatusOr<VerdictSummary> Bury(int64_t step, uint32_t attempt, const absl::Status& error,
                                      const std::string& request_id = "") {
    return attempts().Put("demo", {step, attempt, 0, nullptr, nullptr, error, request_id}).standing;
  }

  std::string root_;
  FakeClock clock_;
  std::unique_ptr<PosixStorage> storage_;
  std::unique_ptr<Catalog> catalog_;
  std::unique_ptr<AttemptStore> attempts_;
};

const absl::Status kLate = MakeError(Reason::kRankLate, "demo@5: rank 1 is late", {{"ranks", "1"}});

TEST_F(CatalogTest, UnknownJob_IsEmpty) {
  EXPECT_TRUE(catalog().Recover("none")->verdict.empty());
  EXPECT_TRUE(catalog().Committed("none")->empty());
  EXPECT_TRUE(HasReason(catalog().ReadManifest("none", std::nullopt).status(), Reason::kNotCommitted));
}

TEST_F(CatalogTest, Recover_SeesVerdictsAndLeftovers) {
  Commit(10, 1);
  ASSERT_TRUE(Bury(20, 1, kLate, "r").ok());
  ASSERT_EQ(attempts().Reserve("demo", 20, 0)->attempt, 2u);
  ASSERT_TRUE(storage_->MakeDirectories("demo/not-a-step/0001").ok());
  ASSERT_TRUE(storage_->MakeDirectories("demo/sub/000000000007").ok());
  const auto recovered = catalog().Recover("demo");
  ASSERT_TRUE(recovered.ok()) << recovered.status();
  ASSERT_EQ(recovered->verdict.size(), 2u);
  EXPECT_EQ(recovered->verdict[0].step, 10);
  EXPECT_TRUE(recovered->verdict[0].committed);
  EXPECT_EQ(recovered->verdict[1].request_id, "r");
  ASSERT_EQ(recovered->leftover.size(), 1u);
  EXPECT_EQ(recovered->leftover[0].attempt, 2u);
  EXPECT_EQ(catalog().Committed("demo")->size(), 1u);
}

TEST_F(CatalogTest, DamagedManifest_IsReportedAndNeverPassedOver) {
  Commit(10, 1);
  Commit(20, 1);
  std::ofstream(root_ + "/" + VerdictPath("demo", 20, 1), std::ios::trunc) << "rubbish";
  EXPECT_TRUE(HasReason(catalog().ReadManifest("demo", std::nullopt).status(), Reason::kManifestCorrupt));
  EXPECT_TRUE(catalog().ReadManifest("demo", 10).ok());
  const auto recovered = catalog().Recover("demo");
  ASSERT_TRUE(recovered.ok()) << recovered.status();
  EXPECT_FALSE(recovered->verdict[1].committed);
  // Its files are kept, and its number is not used again.
  EXPECT_EQ(attempts().Reserve("demo", 20, 0)->attempt, 2u);
  // A manifest of another step under this step's name.
  std::filesystem::copy_file(root_ + "/" + VerdictPath("demo", 10, 1), root_ + "/" + VerdictPath("demo", 20, 2));
  EXPECT_TRUE(HasReason(catalog().ReadManifest("demo", 20).status(), Reason::kManifestCorrupt));
}

}  // namespace
}  // namespace cairn
