#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "common/base/fake_clock.h"
#include "common/file/testing/watched_pread.h"
#include "common/format/checkpoint_path.h"
#include "common/format/testing/newer_outcome.h"
#include "common/status/reason.h"
#include "store/posix/posix_storage.h"
#include "store/read/checkpoint_store.h"
#include "store/storage/testing/fake_root_lock.h"
#include "store/write/attempt_owner.h"
#include "store/write/attempt_store.h"

namespace cairn {
namespace {

class CheckpointChoiceTest : public testing::Test {
 protected:
  CheckpointChoiceTest() {
    root_ = testing::TempDir() + "/catalog-XXXXXX";
    EXPECT_NE(mkdtemp(root_.data()), nullptr);
    storage_ = *PosixStorage::Open(root_, false);
    EXPECT_TRUE(storage_->MakeDirectories(".cairn").ok());
  }
  ~CheckpointChoiceTest() override { std::filesystem::remove_all(root_); }

  Manifest SomeManifest(int64_t step, uint32_t attempt) {
    Manifest manifest;
    manifest.job = "demo";
    manifest.step = step;
    manifest.attempt = attempt;
    manifest.request_id = "request";
    manifest.world_size = 2;
    manifest.plan_digest = "plan";
    manifest.commit_time = absl::FromUnixSeconds(1700000000);
    return manifest;
  }
  absl::StatusOr<StoredAttempt> Put(int64_t step, uint32_t attempt) {
    const auto manifest = std::make_shared<const std::string>(EncodeOutcome(SomeManifest(step, attempt)));
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
  // The checkpoints of a coordinator that has just started.
  CheckpointStore& checkpoints() {
    checkpoints_ = std::make_unique<CheckpointStore>(*storage_);
    return *checkpoints_;
  }
  AttemptStore& attempts() {
    attempts_ = std::make_unique<AttemptStore>(*storage_, checkpoints(), clock_, lock_);
    return *attempts_;
  }
  absl::StatusOr<StoredAttempt> Bury(int64_t step, uint32_t attempt, const absl::Status& error,
                                     const std::string& request_id = "") {
    return attempts().Put("demo", {step, attempt, 0, nullptr, nullptr, error, request_id}).standing;
  }

  std::string root_;
  FakeClock clock_;
  std::unique_ptr<PosixStorage> storage_;
  FakeRootLock lock_;
  std::unique_ptr<CheckpointStore> checkpoints_;
  std::unique_ptr<AttemptStore> attempts_;
};

const absl::Status kLate = MakeError(Reason::kRankLate, "demo@5: rank 1 is late", {{"ranks", "1"}});

TEST_F(CheckpointChoiceTest, Recover_UnknownJob_IsEmpty) {
  EXPECT_TRUE(checkpoints().Recover("none")->empty());
  EXPECT_TRUE(checkpoints().ReadCheckpoints("none")->empty());
  EXPECT_TRUE(HasReason(checkpoints().SharedManifest("none", std::nullopt).status(), Reason::kNotCommitted));
}

TEST_F(CheckpointChoiceTest, Recover_JobWithAttempts_SeesOutcomesAndLeftovers) {
  Commit(10, 1);
  ASSERT_TRUE(Bury(20, 1, kLate, "r").ok());
  ASSERT_EQ(attempts().Reserve("demo", {20})->attempt, 2u);
  ASSERT_TRUE(storage_->MakeDirectories("demo/not-a-step/0001").ok());
  ASSERT_TRUE(storage_->MakeDirectories("demo/sub/000000000007").ok());
  const auto recovered = checkpoints().Recover("demo");
  ASSERT_TRUE(recovered.ok()) << recovered.status();
  ASSERT_EQ(recovered->size(), 3u);
  EXPECT_EQ((*recovered)[0].step, 10);
  EXPECT_TRUE((*recovered)[0].committed && !(*recovered)[0].left_over());
  EXPECT_EQ((*recovered)[1].request_id, "r");
  EXPECT_TRUE((*recovered)[1].aborted() && !(*recovered)[1].left_over()) << "it has no directory";
  EXPECT_EQ((*recovered)[2].attempt, 2u);
  EXPECT_TRUE((*recovered)[2].unfinished && (*recovered)[2].left_over());
  EXPECT_EQ(checkpoints().ReadCheckpoints("demo")->size(), 1u);
}

TEST_F(CheckpointChoiceTest, Recover_DamagedManifest_IsReportedAndNeverPassedOver) {
  Commit(10, 1);
  Commit(20, 1);
  std::ofstream(root_ + "/" + OutcomePath("demo", 20, 1), std::ios::trunc) << "rubbish";
  EXPECT_TRUE(HasReason(checkpoints().SharedManifest("demo", std::nullopt).status(), Reason::kManifestCorrupt));
  EXPECT_TRUE(checkpoints().SharedManifest("demo", 10).ok());
  const auto recovered = checkpoints().Recover("demo");
  ASSERT_TRUE(recovered.ok()) << recovered.status();
  EXPECT_FALSE((*recovered)[1].committed);
  // Its files are kept, and its number is not used again.
  EXPECT_EQ(attempts().Reserve("demo", {20})->attempt, 2u);
  EXPECT_TRUE((*recovered)[1].damaged);
  EXPECT_EQ((*checkpoints().ReadNewestReadable("demo"))->step, 10);
  // A manifest of another step under this step's name.
  std::filesystem::copy_file(root_ + "/" + OutcomePath("demo", 10, 1), root_ + "/" + OutcomePath("demo", 20, 2));
  EXPECT_TRUE(HasReason(checkpoints().SharedManifest("demo", 20).status(), Reason::kManifestCorrupt));
}

TEST_F(CheckpointChoiceTest, ReadNewestReadable_OfTheKnownPlan_IsNotReadAgain) {
  Commit(10, 1);
  CheckpointStore& checkpoints = this->checkpoints();
  EXPECT_EQ(checkpoints.ReadNewestReadable("demo", "plan").value(), nullptr);
  watched_pread.calls = 0;
  EXPECT_EQ(checkpoints.ReadNewestReadable("demo", "plan").value(), nullptr);
  EXPECT_EQ(watched_pread.calls, 0);
  EXPECT_EQ((*checkpoints.ReadNewestReadable("demo", "another"))->step, 10);
  EXPECT_GT(watched_pread.calls, 0);
  // A damaged one above is passed over here too.
  std::filesystem::create_directories(root_ + "/demo/000000000020");
  std::ofstream(root_ + "/" + OutcomePath("demo", 20, 1)) << "rubbish";
  EXPECT_EQ(checkpoints.ReadNewestReadable("demo", "plan").value(), nullptr);
  EXPECT_EQ((*checkpoints.ReadNewestReadable("demo"))->step, 10);
}

TEST_F(CheckpointChoiceTest, Recover_UnreadableOutcome_IsThatStepsTroubleAlone) {
  Commit(10, 1);
  Commit(30, 1);
  std::filesystem::create_directories(root_ + "/demo/000000000020");
  std::filesystem::create_symlink("loop", root_ + "/" + OutcomePath("demo", 20, 1));
  std::filesystem::create_symlink("loop", root_ + "/demo/000000000025");
  const auto recovered = checkpoints().Recover("demo");
  ASSERT_TRUE(recovered.ok()) << recovered.status();
  ASSERT_EQ(recovered->size(), 4u);
  EXPECT_TRUE((*recovered)[1].damaged);
  EXPECT_TRUE(HasReason((*recovered)[1].error, Reason::kPathEscape));
  EXPECT_TRUE((*recovered)[2].damaged);
  EXPECT_EQ((*recovered)[2].attempt, 0u);
  EXPECT_TRUE((*recovered)[3].committed);
  EXPECT_EQ(attempts().Reserve("demo", {40})->attempt, 1u);
  for (int64_t step : {20, 25}) {
    const auto refused = attempts().Reserve("demo", {step});
    EXPECT_TRUE(HasReason(refused.status(), Reason::kPathEscape)) << refused.status();
    EXPECT_NE(std::string(refused.status().message()).find(StepName(step)), std::string::npos);
  }
}

class ValidCheckpointTest : public CheckpointChoiceTest {
 protected:
  // Commits a step with two files, each with a header of 4096 bytes.
  void CommitWithFiles(int64_t step) {
    Manifest manifest = SomeManifest(step, 1);
    const std::string directory = root_ + "/" + AttemptDirectory("demo", step, 1);
    std::filesystem::create_directories(directory);
    for (const std::string name : {"rank00000-bin00", "rank00001-bin00"}) {
      manifest.files.push_back({name, 0, 4096, 0, 0});
      std::ofstream(directory + "/" + name + ".safetensors") << std::string(4096, 'x');
    }
    ASSERT_TRUE(storage_->PutIfAbsent(OutcomePath("demo", step, 1), EncodeOutcome(manifest)).ok());
  }
  std::string Bin(int64_t step) {
    return root_ + "/" + AttemptDirectory("demo", step, 1) + "/rank00001-bin00.safetensors";
  }
};

TEST_F(ValidCheckpointTest, FindValid_ProvenDamage_IsPassedOverAndNamed) {
  for (int64_t step : {10, 20, 30, 40}) CommitWithFiles(step);
  EXPECT_EQ(checkpoints().FindValid("demo", false)->manifest->step, 40);
  std::filesystem::remove(Bin(40));
  std::filesystem::resize_file(Bin(30), 4095);
  std::ofstream(root_ + "/" + OutcomePath("demo", 20, 1), std::ios::trunc) << "rubbish";
  const auto found = checkpoints().FindValid("demo", true);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->manifest->step, 10);
  ASSERT_EQ(found->passed_over.size(), 3u);
  EXPECT_EQ(found->passed_over[0].first, 40);
  EXPECT_TRUE(HasReason(found->passed_over[0].second, Reason::kFileMissing));
  EXPECT_EQ(found->passed_over[1].first, 30);
  EXPECT_TRUE(HasReason(found->passed_over[1].second, Reason::kFileTruncated));
  EXPECT_EQ(found->passed_over[2].first, 20);
  EXPECT_TRUE(HasReason(found->passed_over[2].second, Reason::kManifestCorrupt));
  const auto refused = checkpoints().FindValid("demo", false);
  EXPECT_TRUE(HasReason(refused.status(), Reason::kFileMissing)) << refused.status();
  EXPECT_EQ(MetadataOf(refused.status())["step"], "40");
  // Nothing valid is left: the newest one's error.
  std::filesystem::remove_all(root_ + "/demo/000000000010");
  EXPECT_TRUE(HasReason(checkpoints().FindValid("demo", true).status(), Reason::kFileMissing));
  std::filesystem::remove_all(root_ + "/demo");
  EXPECT_TRUE(HasReason(checkpoints().FindValid("demo", true).status(), Reason::kNotCommitted));
}

TEST_F(ValidCheckpointTest, FindValid_WhatIsNoProof_EndsTheLoadByName) {
  for (int64_t step : {10, 20}) CommitWithFiles(step);
  std::filesystem::remove(Bin(20));
  std::filesystem::create_symlink("elsewhere", Bin(20));
  const auto bin = checkpoints().FindValid("demo", true);
  EXPECT_TRUE(HasReason(bin.status(), Reason::kPathEscape)) << bin.status();
  EXPECT_NE(std::string(bin.status().message()).find("demo@20"), std::string::npos);
  std::filesystem::create_directories(root_ + "/demo/000000000030");
  std::filesystem::create_symlink("elsewhere", root_ + "/" + OutcomePath("demo", 30, 1));
  EXPECT_EQ(MetadataOf(checkpoints().FindValid("demo", true).status())["step"], "30");
  // A newer version wrote it: nobody knows whether it is damaged.
  const std::string bytes = OfVersion(EncodeOutcome(SomeManifest(40, 1)), 9);
  ASSERT_TRUE(storage_->MakeDirectories(StepDirectory("demo", 40)).ok());
  ASSERT_TRUE(storage_->PutIfAbsent(OutcomePath("demo", 40, 1), bytes).ok());
  EXPECT_TRUE(HasReason(checkpoints().FindValid("demo", true).status(), Reason::kFormatTooNew));
}

TEST_F(ValidCheckpointTest, Recover_UnfinishedFilesOfAPredecessor_AreGone) {
  CommitWithFiles(10);
  const std::vector<std::string> left = {root_ + "/demo/.tmp-0123456789abcdef",
                                         root_ + "/demo/000000000010/.tmp-0123456789abcdef",
                                         root_ + "/demo/000000000011/.tmp-0123456789abcdef"};
  ASSERT_TRUE(storage_->MakeDirectories(StepDirectory("demo", 11)).ok());
  for (const std::string& path : left) std::ofstream(path).flush();
  ASSERT_TRUE(checkpoints().Recover("demo").ok());
  for (const std::string& path : left) EXPECT_TRUE(std::filesystem::exists(path)) << "may be this one's";
  CheckpointStore later(*storage_, absl::Now() + absl::Hours(1));
  ASSERT_EQ(later.Recover("demo")->size(), 1u);
  for (const std::string& path : left) EXPECT_FALSE(std::filesystem::exists(path)) << path;
  EXPECT_TRUE(std::filesystem::exists(Bin(10)));
  EXPECT_EQ(later.SharedManifest("demo", 10).value()->step, 10);
}

// A second name of a bin stays where an agent could not remove it.
TEST_F(ValidCheckpointTest, Recover_SecondNamesBesideCommittedBins_AreGone) {
  CommitWithFiles(10);
  const std::string partial = std::filesystem::path(Bin(10)).replace_extension(".partial");
  std::filesystem::create_hard_link(Bin(10), partial);
  ASSERT_TRUE(checkpoints().Recover("demo").ok());
  EXPECT_TRUE(std::filesystem::exists(partial)) << "may be of this coordinator's time";
  CheckpointStore later(*storage_, absl::Now() + absl::Hours(1));
  ASSERT_EQ(later.Recover("demo")->size(), 1u);
  EXPECT_FALSE(std::filesystem::exists(partial));
  EXPECT_TRUE(later.IsValid("demo", 10));
}

// Storage is not asked for what is known: here it is known that 30 is superseded, which its record does not say.
TEST_F(ValidCheckpointTest, FindValid_StepsAreKnown_LooksAtTheNewestOneAlone) {
  for (int64_t step : {10, 20, 30}) CommitWithFiles(step);
  const KnownSteps known{{10, 20, 30}, {10, 20}, {10, 20}};
  EXPECT_EQ(checkpoints().FindValid("demo", false, &known)->manifest->step, 20);
  std::filesystem::create_directories(root_ + "/demo/000000000040");
  EXPECT_EQ(checkpoints().FindValid("demo", false, &known)->manifest->step, 20) << "40 is being saved";
}

TEST_F(ValidCheckpointTest, FindValid_StorageIsNotAsKnown_LooksAtAll) {
  for (int64_t step : {10, 20}) CommitWithFiles(step);
  const KnownSteps known{{10, 20}, {10, 20}, {10, 20}};
  CommitWithFiles(30);
  EXPECT_EQ(checkpoints().FindValid("demo", false, &known)->manifest->step, 30) << "somebody else has put it there";
  std::filesystem::remove_all(root_ + "/demo/000000000030");
  std::filesystem::remove_all(root_ + "/demo/000000000020");
  EXPECT_EQ(checkpoints().FindValid("demo", false, &known)->manifest->step, 10) << "somebody else has removed it";
}

TEST_F(ValidCheckpointTest, FindValid_FileWasReplaced_CacheIsNotUsed) {
  CommitWithFiles(10);
  CheckpointStore kept(*storage_);
  EXPECT_EQ(kept.SharedManifest("demo", 10).value()->request_id, "request");
  EXPECT_EQ(kept.SharedManifest("demo", 10).value(), kept.SharedManifest("demo", 10).value());
  std::filesystem::remove_all(root_ + "/demo/000000000010");
  EXPECT_TRUE(HasReason(kept.SharedManifest("demo", 10).status(), Reason::kNotCommitted));
  EXPECT_TRUE(kept.Recover("demo")->empty());
  Manifest other = SomeManifest(10, 1);
  other.request_id = "another";
  ASSERT_TRUE(storage_->MakeDirectories(StepDirectory("demo", 10)).ok());
  ASSERT_TRUE(storage_->PutIfAbsent(OutcomePath("demo", 10, 1), EncodeOutcome(other)).ok());
  EXPECT_EQ(kept.SharedManifest("demo", 10).value()->request_id, "another");
  EXPECT_EQ(DecodeOutcome(*kept.ReadManifestBytes("demo", 10)->bytes).ok(), true);
}

}  // namespace
}  // namespace cairn
