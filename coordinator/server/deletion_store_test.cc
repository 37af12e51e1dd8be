#include "coordinator/server/deletion_store.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "common/base/fake_clock.h"
#include "common/format/verdict.h"
#include "common/status/reason.h"
#include "common/storage/checkpoint_path.h"

namespace cairn {
namespace {

constexpr char kJob[] = "demo";

class DeletionStoreTest : public testing::Test {
 protected:
  DeletionStoreTest() {
    std::string pattern = testing::TempDir() + "/deletions_XXXXXX";
    root_ = mkdtemp(pattern.data());
    storage_ = *PosixStorage::Open(root_, false);
    Open();
  }
  ~DeletionStoreTest() override { std::filesystem::remove_all(root_); }

  // A coordinator that has just started.
  void Open() {
    catalog_ = std::make_unique<Catalog>(*storage_);
    store_ = std::make_unique<DeletionStore>(*storage_, *catalog_, clock_,
                                             RootHold{[this] {
                                                        clock_.Advance(storage_time_);
                                                        return held_;
                                                      },
                                                      [this] {
                                                        ++raised_;
                                                        return raise_;
                                                      }});
  }
  // A checkpoint with one file.
  void Commit(int64_t step, uint32_t attempt = 1, std::vector<Metric> metrics = {}) {
    Manifest manifest;
    manifest.job = kJob;
    manifest.step = step;
    manifest.attempt = attempt;
    manifest.request_id = "request";
    manifest.metrics = std::move(metrics);
    manifest.world_size = 1;
    manifest.layout_digests = {std::string(32, 'd')};
    manifest.rank_layout = {0};
    manifest.nodes = {"n"};
    manifest.rank_node = {0};
    manifest.files = {{"rank00000-bin00", 0, 4096, 0, 0}};
    ASSERT_TRUE(storage_->MakeDirectories(AttemptDirectory(kJob, step, attempt)).ok());
    std::ofstream(Bin(step, attempt)) << std::string(4096, 'h');
    ASSERT_TRUE(storage_->PutIfAbsent(VerdictPath(kJob, step, attempt), EncodeVerdict(manifest)).ok());
  }
  std::string Bin(int64_t step, uint32_t attempt = 1) const {
    return root_ + "/" + AttemptDirectory(kJob, step, attempt) + "/rank00000-bin00.safetensors";
  }
  std::string Verdict(int64_t step, uint32_t attempt = 1) const {
    return root_ + "/" + VerdictPath(kJob, step, attempt);
  }
  std::string Deletion(int64_t step, uint32_t attempt = 1) const {
    return root_ + "/" + DeletionPath(kJob, step, attempt);
  }
  static void Damage(const std::string& path) { std::filesystem::resize_file(path, 10); }
  absl::StatusOr<ChangedSteps> Delete(int64_t step) { return store_->Delete(kJob, {step, "a test"}, latest_); }
  std::vector<int64_t> Listed() {
    std::vector<int64_t> steps;
    const auto listed = catalog_->Checkpoints(kJob);
    for (const StepRecord& step : *listed) {
      if (step.state() == StepRecord::State::kCommitted) steps.push_back(step.step);
    }
    return steps;
  }

  std::string root_;
  std::unique_ptr<PosixStorage> storage_;
  FakeClock clock_;
  absl::Duration storage_time_;    // what a look at the root takes
  std::optional<int64_t> latest_;  // what the job takes for the latest
  absl::Status held_;
  absl::Status raise_;
  int raised_ = 0;
  std::unique_ptr<Catalog> catalog_;
  std::unique_ptr<DeletionStore> store_;
};

TEST_F(DeletionStoreTest, Delete_AnotherSoundOneRemains_IsNoCheckpointAnyMoreAndKeepsItsFiles) {
  Commit(1);
  Commit(2);
  const auto changed = Delete(1);
  ASSERT_TRUE(changed.ok()) << changed.status();
  ASSERT_EQ(changed->deleted.size(), 1u);
  EXPECT_TRUE(changed->deleted[0].deleted);
  EXPECT_TRUE(changed->deleted[0].committed);
  EXPECT_FALSE(changed->deleted[0].stands());
  EXPECT_EQ(changed->deleted[0].bytes, 4096u);
  EXPECT_EQ(changed->deleted[0].request_id, "request");
  EXPECT_EQ(Listed(), std::vector<int64_t>{2});
  EXPECT_TRUE(std::filesystem::exists(Bin(1)));
  EXPECT_EQ(raised_, 1);
  const auto told = catalog_->ReadManifest(kJob, 1).status();
  EXPECT_TRUE(HasReason(told, Reason::kNotCommitted)) << told;
  EXPECT_NE(told.message().find("a test"), std::string::npos) << told;
  EXPECT_NE(told.message().find("step 2 remained"), std::string::npos) << told;
}

TEST_F(DeletionStoreTest, DeleteReplaced_LaterAttemptIsSound_DeletesTheEarlierOnes) {
  Commit(1);
  Commit(1, 2);
  Commit(1, 3);
  const auto changed = store_->Delete(kJob, DeleteReplaced{1});
  ASSERT_TRUE(changed.ok()) << changed.status();
  ASSERT_EQ(changed->deleted.size(), 2u);
  EXPECT_EQ(changed->deleted[0].attempt, 1u);
  EXPECT_EQ(changed->deleted[1].attempt, 2u);
  EXPECT_EQ(Listed(), std::vector<int64_t>{1});
  EXPECT_GT(raised_, 0);
  EXPECT_TRUE(store_->Remove(kJob, 1, 1, latest_).ok());
  EXPECT_FALSE(std::filesystem::exists(Bin(1, 1)));
  EXPECT_EQ(store_->Delete(kJob, DeleteReplaced{1})->deleted.size(), 1u) << "the files of attempt 2 are there still";
  EXPECT_TRUE(store_->Remove(kJob, 1, 2, latest_).ok());
  EXPECT_FALSE(store_->Remove(kJob, 1, 3, latest_).ok());
  EXPECT_TRUE(store_->Delete(kJob, DeleteReplaced{1})->deleted.empty()) << "nothing more to do";
}

TEST_F(DeletionStoreTest, DeleteReplaced_LaterOneIsNotSoundOrTheStepIsPinned_KeepsAll) {
  Commit(1);
  Commit(1, 2);
  std::filesystem::remove(Bin(1, 2));
  EXPECT_TRUE(store_->Delete(kJob, DeleteReplaced{1})->deleted.empty()) << "it lacks a file";
  Commit(1, 3);
  ASSERT_TRUE(store_->Pin(kJob, {1, true, ""}).ok());
  EXPECT_TRUE(store_->Delete(kJob, DeleteReplaced{1})->deleted.empty()) << "pinned";
  EXPECT_TRUE(store_->Delete(kJob, DeleteReplaced{7})->deleted.empty()) << "no such step";
  EXPECT_EQ(raised_, 0);
  held_ = MakeError(Reason::kRootInUse, "another one serves the root");
  EXPECT_TRUE(HasReason(store_->Delete(kJob, DeleteReplaced{1}).status(), Reason::kRootInUse));
}

TEST_F(DeletionStoreTest, Delete_WasDeletedBefore_ChangesNothing) {
  Commit(1);
  Commit(2);
  ASSERT_TRUE(Delete(1).ok());
  clock_.Advance(absl::Hours(1));
  const auto again = Delete(1);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->deleted.size(), 1u);
  EXPECT_EQ(raised_, 1);
}

TEST_F(DeletionStoreTest, Delete_TheLastSoundOne_IsRefused) {
  Commit(1);
  EXPECT_TRUE(HasReason(Delete(1).status(), Reason::kLastCheckpoint));
  Commit(2);
  std::filesystem::remove(Bin(2));
  EXPECT_TRUE(HasReason(Delete(1).status(), Reason::kLastCheckpoint)) << "the other one lacks a file";
  Commit(3);
  Damage(Verdict(3));
  EXPECT_TRUE(HasReason(Delete(1).status(), Reason::kLastCheckpoint)) << "that one's manifest does not read";
  EXPECT_EQ(Listed(), (std::vector<int64_t>{1, 2}));
}

TEST_F(DeletionStoreTest, Delete_DeletedOnesAreNoSoundOnes_TheLastStays) {
  Commit(1);
  Commit(2);
  ASSERT_TRUE(Delete(2).ok());
  EXPECT_TRUE(HasReason(Delete(1).status(), Reason::kLastCheckpoint)) << "the files of step 2 are there still";
}

TEST_F(DeletionStoreTest, Delete_NeverCommitted_SaysSo) {
  Commit(1);
  EXPECT_TRUE(HasReason(Delete(7).status(), Reason::kNotCommitted));
}

TEST_F(DeletionStoreTest, Delete_IsPinned_IsRefusedWhateverThePinIs) {
  Commit(1);
  Commit(2);
  std::filesystem::create_symlink("nowhere", root_ + "/" + PinPath(kJob, 1));
  EXPECT_TRUE(HasReason(Delete(1).status(), Reason::kCheckpointPinned));
  EXPECT_FALSE(std::filesystem::exists(Deletion(1)));
}

TEST_F(DeletionStoreTest, Delete_ManifestIsDamaged_IsDeletedOnDemand) {
  Commit(1);
  Commit(2);
  Damage(Verdict(1));
  const auto changed = Delete(1);
  ASSERT_TRUE(changed.ok()) << changed.status();
  EXPECT_FALSE(changed->deleted[0].committed) << "nobody knows what it was";
  EXPECT_EQ(catalog_->ReadStep(kJob, 1).state(), StepRecord::State::kNothing);
}

TEST_F(DeletionStoreTest, Delete_StorageSaysNotWhatStands_IsRefused) {
  Commit(1);
  Commit(2);
  std::filesystem::remove(Verdict(1));
  std::filesystem::create_symlink("nowhere", Verdict(1));
  const auto changed = Delete(1);
  EXPECT_TRUE(HasReason(changed.status(), Reason::kPathEscape)) << changed.status();
  EXPECT_FALSE(std::filesystem::exists(Deletion(1)));
}

TEST_F(DeletionStoreTest, Delete_RootIsAnothers_PutsNothing) {
  Commit(1);
  Commit(2);
  held_ = MakeError(Reason::kRootInUse, "another coordinator's");
  EXPECT_TRUE(HasReason(Delete(1).status(), Reason::kRootInUse));
  EXPECT_EQ(raised_, 0);
  EXPECT_FALSE(std::filesystem::exists(Deletion(1)));
}

TEST_F(DeletionStoreTest, Delete_FormatCannotBeRaised_PutsNothing) {
  Commit(1);
  Commit(2);
  raise_ = MakeError(Reason::kStorageError, "I/O error");
  EXPECT_TRUE(HasReason(Delete(1).status(), Reason::kStorageError));
  EXPECT_FALSE(std::filesystem::exists(Deletion(1))) << "an older coordinator would not understand it";
}

TEST_F(DeletionStoreTest, Delete_TwoAttemptsAreCommitted_BothGo) {
  Commit(1, 1);
  Commit(1, 2);
  Commit(2);
  const auto changed = Delete(1);
  ASSERT_TRUE(changed.ok()) << changed.status();
  EXPECT_EQ(changed->deleted.size(), 2u);
  EXPECT_EQ(Listed(), std::vector<int64_t>{2});
}

TEST_F(DeletionStoreTest, ReadStep_DeletionCannotBeRead_IsDamagedAndKeepsItsFiles) {
  Commit(1);
  Commit(2);
  ASSERT_TRUE(Delete(1).ok());
  Damage(Deletion(1));
  Open();
  const StepRecord step = catalog_->ReadStep(kJob, 1);
  EXPECT_EQ(step.state(), StepRecord::State::kDamaged);
  EXPECT_TRUE(HasReason(step.damage(), Reason::kManifestCorrupt));
  EXPECT_FALSE(store_->Remove(kJob, 1, 1, latest_).ok());
  EXPECT_TRUE(std::filesystem::exists(Bin(1)));
}

TEST_F(DeletionStoreTest, ReadStep_DeletionOfAnotherStep_IsDamage) {
  Commit(1);
  Commit(2);
  ASSERT_TRUE(Delete(1).ok());
  std::filesystem::copy(Deletion(1), Deletion(2));
  Open();
  EXPECT_EQ(catalog_->ReadStep(kJob, 2).state(), StepRecord::State::kDamaged);
  EXPECT_FALSE(store_->Remove(kJob, 2, 1, latest_).ok());
}

TEST_F(DeletionStoreTest, Remove_IsDeleted_RemovesTheFilesAndKeepsTheRecords) {
  Commit(1);
  Commit(2);
  ASSERT_TRUE(Delete(1).ok());
  ASSERT_TRUE(store_->Remove(kJob, 1, 1, latest_).ok());
  EXPECT_FALSE(std::filesystem::exists(Bin(1)));
  EXPECT_TRUE(std::filesystem::exists(Verdict(1)));
  EXPECT_TRUE(std::filesystem::exists(Deletion(1)));
  EXPECT_TRUE(store_->Remove(kJob, 1, 1, latest_).ok()) << "it may be asked for again";
}

TEST_F(DeletionStoreTest, Remove_IsNotDeleted_RemovesNothing) {
  Commit(1);
  Commit(2);
  EXPECT_FALSE(store_->Remove(kJob, 1, 1, latest_).ok());
  EXPECT_TRUE(std::filesystem::exists(Bin(1)));
}

TEST_F(DeletionStoreTest, Remove_NothingSoundIsLeft_RemovesNothing) {
  Commit(1);
  Commit(2);
  ASSERT_TRUE(Delete(1).ok());
  // A coordinator that was frozen between its look and its record has deleted the other one.
  std::filesystem::copy(Deletion(1), root_ + "/kept");
  std::filesystem::remove(Deletion(1));
  ASSERT_TRUE(Delete(2).ok());
  std::filesystem::copy(root_ + "/kept", Deletion(1));
  Open();
  EXPECT_TRUE(Listed().empty());
  EXPECT_TRUE(HasReason(store_->Remove(kJob, 1, 1, latest_), Reason::kLastCheckpoint));
  EXPECT_TRUE(HasReason(store_->Remove(kJob, 2, 1, latest_), Reason::kLastCheckpoint));
  EXPECT_TRUE(std::filesystem::exists(Bin(1)) && std::filesystem::exists(Bin(2)));
}

TEST_F(DeletionStoreTest, Remove_RootIsAnothers_RemovesNothing) {
  Commit(1);
  Commit(2);
  ASSERT_TRUE(Delete(1).ok());
  held_ = MakeError(Reason::kRootInUse, "another coordinator's");
  EXPECT_TRUE(HasReason(store_->Remove(kJob, 1, 1, latest_), Reason::kRootInUse));
  EXPECT_TRUE(std::filesystem::exists(Bin(1)));
}

TEST_F(DeletionStoreTest, Pin_PinnedAndUnpinned_ProtectsBetween) {
  Commit(1);
  Commit(2);
  ASSERT_TRUE(store_->Pin(kJob, {1, true, "in the paper"}).ok());
  ASSERT_TRUE(store_->Pin(kJob, {1, true, "again"}).ok());
  EXPECT_TRUE(catalog_->ReadStep(kJob, 1).pinned);
  EXPECT_TRUE(HasReason(Delete(1).status(), Reason::kCheckpointPinned));
  ASSERT_TRUE(store_->Pin(kJob, {1, false, ""}).ok());
  EXPECT_FALSE(catalog_->ReadStep(kJob, 1).pinned);
  EXPECT_TRUE(Delete(1).ok());
  EXPECT_TRUE(HasReason(store_->Pin(kJob, {1, true, ""}).status(), Reason::kNotCommitted)) << "it is deleted";
}

TEST_F(DeletionStoreTest, Tag_TaggedAndUntagged_ProtectsBetween) {
  Commit(1);
  Commit(2);
  ASSERT_TRUE(store_->Tag(kJob, {"paper", 1}).ok());
  ASSERT_TRUE(store_->Tag(kJob, {"paper", 1}).ok()) << "again";
  ASSERT_TRUE(store_->Tag(kJob, {"best", 1}).ok());
  EXPECT_EQ(catalog_->ReadStep(kJob, 1).tags, (std::vector<std::string>{"best", "paper"}));
  const absl::Status refused = Delete(1).status();
  EXPECT_TRUE(HasReason(refused, Reason::kCheckpointPinned)) << refused;
  EXPECT_NE(refused.message().find("best, paper"), std::string::npos) << refused;
  EXPECT_EQ(store_->Tag(kJob, {"best", std::nullopt})->untagged, std::vector<int64_t>{1});
  EXPECT_TRUE(HasReason(Delete(1).status(), Reason::kCheckpointPinned)) << "the other tag is there still";
  EXPECT_EQ(store_->Tag(kJob, {"paper", std::nullopt})->untagged, std::vector<int64_t>{1});
  EXPECT_TRUE(store_->Tag(kJob, {"paper", std::nullopt})->untagged.empty());
  EXPECT_TRUE(Delete(1).ok());
  EXPECT_TRUE(HasReason(store_->Tag(kJob, {"paper", 1}).status(), Reason::kNotCommitted)) << "it is deleted";
}

TEST_F(DeletionStoreTest, Tag_AnotherStepHasIt_IsRefused) {
  Commit(1);
  Commit(2);
  ASSERT_TRUE(store_->Tag(kJob, {"best", 1}).ok());
  const absl::Status refused = store_->Tag(kJob, {"best", 2}).status();
  EXPECT_TRUE(HasReason(refused, Reason::kBadRequest)) << refused;
  EXPECT_TRUE(catalog_->ReadStep(kJob, 2).tags.empty());
  EXPECT_TRUE(HasReason(store_->Tag(kJob, {"../../x", 2}).status(), Reason::kBadRequest));
}

TEST_F(DeletionStoreTest, Tag_SeveralStepsHaveIt_UntagTakesItFromAll) {
  for (int64_t step : {1, 2}) {
    Commit(step);
    ASSERT_TRUE(storage_->PutIfAbsent(TagPath(kJob, step, "best"), "").ok()) << "as two coordinators may have left it";
  }
  EXPECT_EQ(store_->Tag(kJob, {"best", std::nullopt})->untagged, (std::vector<int64_t>{1, 2}));
  EXPECT_TRUE(Delete(1).ok());
}

TEST_F(DeletionStoreTest, Tag_CannotBeRead_Protects) {
  Commit(1);
  Commit(2);
  std::filesystem::create_directory(root_ + "/" + TagPath(kJob, 1, "best"));
  EXPECT_TRUE(HasReason(Delete(1).status(), Reason::kCheckpointPinned)) << "a directory is in its place";
  ASSERT_TRUE(store_->Prune(kJob, {PrunePolicy{.keep_last = 1}, /*dry_run=*/false}).ok());
  EXPECT_EQ(Listed(), (std::vector<int64_t>{1, 2}));
}

TEST_F(DeletionStoreTest, Tag_RootIsLost_PutsNothing) {
  Commit(1);
  held_ = MakeError(Reason::kRootInUse, "another one");
  EXPECT_TRUE(HasReason(store_->Tag(kJob, {"best", 1}).status(), Reason::kRootInUse));
  EXPECT_TRUE(catalog_->ReadStep(kJob, 1).tags.empty());
}

TEST_F(DeletionStoreTest, Prune_KeepBest_TheBestByTheManifestsStays) {
  Commit(10, 1, {{"loss", 0.5}});
  Commit(20, 1, {{"loss", 0.1}});
  Commit(30, 1, {{"loss", 0.3}});
  Commit(40, 1, {{"accuracy", 0.9}});
  const PrunePolicy policy{.keep_best = BestRule{"loss", false}};
  ASSERT_TRUE(store_->SetPolicy(kJob, {policy}).ok());
  Open();
  const auto pruned = store_->Prune(kJob, PruneSteps{});
  ASSERT_TRUE(pruned.ok()) << pruned.status();
  EXPECT_EQ(pruned->policy, policy);
  EXPECT_EQ(Listed(), (std::vector<int64_t>{20, 40}));
  EXPECT_EQ(pruned->choices[1].why, "the lowest loss");
}

TEST_F(DeletionStoreTest, Prune_APolicyIsGiven_DeletesTheRest) {
  for (int64_t step : {10, 20, 30, 40, 50}) Commit(step);
  std::filesystem::remove(Bin(20));
  Damage(Verdict(50));
  ASSERT_TRUE(store_->Pin(kJob, {10, true, ""}).ok());
  Commit(5);
  const auto dry = store_->Prune(kJob, {PrunePolicy{.keep_last = 1}, /*dry_run=*/true});
  ASSERT_TRUE(dry.ok()) << dry.status();
  EXPECT_TRUE(dry->deleted.empty());
  EXPECT_EQ(Listed(), (std::vector<int64_t>{5, 10, 20, 30, 40}));
  const auto pruned = store_->Prune(kJob, {PrunePolicy{.keep_last = 1}, /*dry_run=*/false});
  ASSERT_TRUE(pruned.ok()) << pruned.status();
  EXPECT_EQ(pruned->choices, dry->choices);
  EXPECT_EQ(Listed(), (std::vector<int64_t>{10, 20, 40})) << "20 lacks a file";
  ASSERT_EQ(pruned->deleted.size(), 2u);
  EXPECT_EQ(pruned->deleted[0].step, 5) << "the oldest first";
}

TEST_F(DeletionStoreTest, Prune_StorageIsSlow_StopsAndGoesOn) {
  for (int64_t step = 1; step <= 9; ++step) Commit(step);
  std::filesystem::remove(Bin(2));
  storage_time_ = DeletionStore::kPruneTime;
  PruneSteps prune{PrunePolicy{.keep_last = 1}};
  int actions = 0;
  for (;; ++actions) {
    const auto pruned = store_->Prune(kJob, prune);
    ASSERT_TRUE(pruned.ok()) << pruned.status();
    EXPECT_LE(pruned->deleted.size(), 1u);
    EXPECT_EQ(pruned->choices.back().why, "the newest");
    if (!pruned->stopped_after.has_value()) break;
    prune.after = pruned->stopped_after;
    // What is pinned while a prune goes on stays.
    if (actions == 3) {
      ASSERT_TRUE(store_->Pin(kJob, {7, true, ""}).ok());
    }
    ASSERT_LT(actions, 9);
  }
  EXPECT_GE(actions, 5);
  EXPECT_EQ(Listed(), (std::vector<int64_t>{2, 7, 9})) << "2 lacks a file";
}

TEST_F(DeletionStoreTest, Prune_StepsAreGiven_LooksAtNoOthers) {
  for (int64_t step = 1; step <= 5; ++step) Commit(step);
  PruneSteps prune{PrunePolicy{.keep_last = 1}};
  prune.steps = {1, 2, 5, 7};
  const auto pruned = store_->Prune(kJob, prune);
  ASSERT_TRUE(pruned.ok()) << pruned.status();
  EXPECT_EQ(pruned->choices.size(), 3u) << "there is no step 7";
  EXPECT_EQ(Listed(), (std::vector<int64_t>{3, 4, 5}));
}

TEST_F(DeletionStoreTest, Delete_TheLatestIsKnown_IsLookedAtFirstAndNotBelieved) {
  for (int64_t step = 1; step <= 4; ++step) Commit(step);
  latest_ = 3;
  ASSERT_TRUE(Delete(1).ok());
  EXPECT_NE(std::string(catalog_->Read(kJob, 1, 1)->error.message()).find("step 3 remained"), std::string::npos)
      << catalog_->Read(kJob, 1, 1)->error;
  std::filesystem::remove(Bin(3));
  ASSERT_TRUE(Delete(2).ok());
  EXPECT_NE(std::string(catalog_->Read(kJob, 2, 1)->error.message()).find("step 4 remained"), std::string::npos);
  latest_ = 4;
  EXPECT_TRUE(HasReason(Delete(4).status(), Reason::kLastCheckpoint)) << "3 lacks a file";
}

TEST_F(DeletionStoreTest, Prune_StepIsInUse_Stays) {
  for (int64_t step : {10, 20, 30}) Commit(step);
  ASSERT_TRUE(store_->Prune(kJob, {PrunePolicy{.keep_last = 1}, /*dry_run=*/false, {10}}).ok());
  EXPECT_EQ(Listed(), (std::vector<int64_t>{10, 30}));
}

TEST_F(DeletionStoreTest, Prune_TheJobsPolicy_IsTheOneThatWasSetLast) {
  for (int64_t step : {10, 20, 30}) Commit(step);
  const PruneSteps by_policy;
  ASSERT_TRUE(store_->Prune(kJob, by_policy).ok());
  EXPECT_EQ(Listed().size(), 3u) << "it has none";
  ASSERT_TRUE(store_->SetPolicy(kJob, {PrunePolicy{.keep_last = 1}}).ok());
  ASSERT_TRUE(store_->SetPolicy(kJob, {PrunePolicy{.keep_last = 2}}).ok());
  Open();
  const auto pruned = store_->Prune(kJob, by_policy);
  ASSERT_TRUE(pruned.ok()) << pruned.status();
  EXPECT_EQ(pruned->policy, PrunePolicy{.keep_last = 2});
  EXPECT_EQ(Listed(), (std::vector<int64_t>{20, 30}));
  ASSERT_TRUE(store_->SetPolicy(kJob, {}).ok());
  Commit(40);
  ASSERT_TRUE(store_->Prune(kJob, by_policy).ok());
  EXPECT_EQ(Listed().size(), 3u) << "it has none any more";
}

TEST_F(DeletionStoreTest, Prune_TheJobsPolicyCannotBeRead_DeletesNothing) {
  for (int64_t step : {10, 20, 30}) Commit(step);
  ASSERT_TRUE(store_->SetPolicy(kJob, {PrunePolicy{.keep_last = 1}}).ok());
  Damage(root_ + "/" + RetentionPath(kJob));
  EXPECT_TRUE(HasReason(store_->Prune(kJob, PruneSteps{}).status(), Reason::kRetentionUnreadable));
  EXPECT_EQ(Listed().size(), 3u);
}

TEST_F(DeletionStoreTest, Recover_EndedBetweenRecordAndRemoval_TheFilesAreLeftovers) {
  Commit(1);
  Commit(2);
  ASSERT_TRUE(Delete(1).ok());
  Open();
  const auto recovered = catalog_->Recover(kJob);
  ASSERT_TRUE(recovered.ok());
  ASSERT_EQ(recovered->leftover.size(), 1u);
  EXPECT_EQ(recovered->leftover[0].step, 1);
  EXPECT_TRUE(recovered->leftover[0].deleted);
  ASSERT_EQ(recovered->verdict.size(), 2u);
  EXPECT_TRUE(recovered->verdict[0].deleted);
  ASSERT_TRUE(store_->Remove(kJob, 1, 1, latest_).ok());
  EXPECT_TRUE(catalog_->Recover(kJob)->leftover.empty());
}

}  // namespace
}  // namespace cairn
