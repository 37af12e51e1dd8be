#include "store/write/deletion_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "common/file/testing/failing_calls.h"
#include "common/format/checkpoint_path.h"
#include "common/status/reason.h"
#include "store/write/testing/deletion_fixture.h"

namespace cairn {
namespace {

using DeletionStoreTest = DeletionFixture;

TEST_F(DeletionStoreTest, Delete_AnotherValidOneRemains_IsNoCheckpointAnyMoreAndKeepsItsFiles) {
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
  EXPECT_EQ(lock_.raised, 1);
  const auto told = checkpoints_->SharedManifest(kJob, 1).status();
  EXPECT_TRUE(HasReason(told, Reason::kNotCommitted)) << told;
  EXPECT_NE(told.message().find("a test"), std::string::npos) << told;
  EXPECT_NE(told.message().find("step 2 remained"), std::string::npos) << told;
}

TEST_F(DeletionStoreTest, DeleteReplaced_LaterAttemptIsValid_DeletesTheEarlierOnes) {
  Commit(1);
  Commit(1, 2);
  Commit(1, 3);
  const auto changed = store_->Delete(kJob, DeleteReplaced{1});
  ASSERT_TRUE(changed.ok()) << changed.status();
  ASSERT_EQ(changed->deleted.size(), 2u);
  EXPECT_EQ(changed->deleted[0].attempt, 1u);
  EXPECT_EQ(changed->deleted[1].attempt, 2u);
  EXPECT_TRUE(changed->deleted[1].deleted_by_rules);
  EXPECT_EQ(Listed(), std::vector<int64_t>{1});
  EXPECT_GT(lock_.raised, 0);
  EXPECT_TRUE(store_->Remove(kJob, 1, 1, latest_).ok());
  EXPECT_FALSE(std::filesystem::exists(Bin(1, 1)));
  EXPECT_EQ(store_->Delete(kJob, DeleteReplaced{1})->deleted.size(), 1u) << "the files of attempt 2 are there still";
  EXPECT_TRUE(store_->Remove(kJob, 1, 2, latest_).ok());
  EXPECT_FALSE(store_->Remove(kJob, 1, 3, latest_).ok());
  EXPECT_TRUE(store_->Delete(kJob, DeleteReplaced{1})->deleted.empty()) << "nothing more to do";
}

TEST_F(DeletionStoreTest, DeleteReplaced_LaterOneIsNotValidOrTheStepIsPinned_KeepsAll) {
  Commit(1);
  Commit(1, 2);
  std::filesystem::remove(Bin(1, 2));
  EXPECT_TRUE(store_->Delete(kJob, DeleteReplaced{1})->deleted.empty()) << "it lacks a file";
  Commit(1, 3);
  ASSERT_TRUE(store_->Pin(kJob, {1, true, ""}).ok());
  EXPECT_TRUE(store_->Delete(kJob, DeleteReplaced{1})->deleted.empty()) << "pinned";
  EXPECT_TRUE(store_->Delete(kJob, DeleteReplaced{7})->deleted.empty()) << "no such step";
  EXPECT_EQ(lock_.raised, 0);
  lock_.held = MakeError(Reason::kRootInUse, "another one serves the root");
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
  EXPECT_EQ(lock_.raised, 1);
}

TEST_F(DeletionStoreTest, Delete_TheLastValidOne_IsRefused) {
  Commit(1);
  EXPECT_TRUE(HasReason(Delete(1).status(), Reason::kLastCheckpoint));
  Commit(2);
  std::filesystem::remove(Bin(2));
  EXPECT_TRUE(HasReason(Delete(1).status(), Reason::kLastCheckpoint)) << "the other one lacks a file";
  Commit(3);
  Damage(Outcome(3));
  EXPECT_TRUE(HasReason(Delete(1).status(), Reason::kLastCheckpoint)) << "that one's manifest does not read";
  EXPECT_EQ(Listed(), (std::vector<int64_t>{1, 2}));
}

TEST_F(DeletionStoreTest, Delete_DeletedOnesAreNoValidOnes_TheLastStays) {
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
  Damage(Outcome(1));
  const auto changed = Delete(1);
  ASSERT_TRUE(changed.ok()) << changed.status();
  EXPECT_FALSE(changed->deleted[0].committed) << "nobody knows what it was";
  EXPECT_EQ(checkpoints_->ReadStep(kJob, 1).state(), StepRecord::State::kNothing);
}

TEST_F(DeletionStoreTest, Delete_StorageSaysNotWhatStands_IsRefused) {
  Commit(1);
  Commit(2);
  std::filesystem::remove(Outcome(1));
  std::filesystem::create_symlink("nowhere", Outcome(1));
  const auto changed = Delete(1);
  EXPECT_TRUE(HasReason(changed.status(), Reason::kPathEscape)) << changed.status();
  EXPECT_FALSE(std::filesystem::exists(Deletion(1)));
}

TEST_F(DeletionStoreTest, Delete_RootIsAnothers_PutsNothing) {
  Commit(1);
  Commit(2);
  lock_.held = MakeError(Reason::kRootInUse, "another coordinator's");
  EXPECT_TRUE(HasReason(Delete(1).status(), Reason::kRootInUse));
  EXPECT_EQ(lock_.raised, 0);
  EXPECT_FALSE(std::filesystem::exists(Deletion(1)));
}

TEST_F(DeletionStoreTest, Delete_FormatCannotBeRaised_PutsNothing) {
  Commit(1);
  Commit(2);
  lock_.raise = MakeError(Reason::kStorageError, "I/O error");
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
  const StepRecord step = checkpoints_->ReadStep(kJob, 1);
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
  EXPECT_EQ(checkpoints_->ReadStep(kJob, 2).state(), StepRecord::State::kDamaged);
  EXPECT_FALSE(store_->Remove(kJob, 2, 1, latest_).ok());
}

TEST_F(DeletionStoreTest, Remove_IsDeleted_RemovesTheFilesAndKeepsTheRecords) {
  Commit(1);
  Commit(2);
  ASSERT_TRUE(Delete(1).ok());
  ASSERT_TRUE(store_->Remove(kJob, 1, 1, latest_).ok());
  EXPECT_FALSE(std::filesystem::exists(Bin(1)));
  EXPECT_TRUE(std::filesystem::exists(Outcome(1)));
  EXPECT_TRUE(std::filesystem::exists(Deletion(1)));
  EXPECT_TRUE(store_->Remove(kJob, 1, 1, latest_).ok()) << "it may be asked for again";
}

TEST_F(DeletionStoreTest, Remove_IsNotDeleted_RemovesNothing) {
  Commit(1);
  Commit(2);
  EXPECT_FALSE(store_->Remove(kJob, 1, 1, latest_).ok());
  EXPECT_TRUE(std::filesystem::exists(Bin(1)));
}

TEST_F(DeletionStoreTest, Remove_NothingValidIsLeft_RemovesNothing) {
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
  lock_.held = MakeError(Reason::kRootInUse, "another coordinator's");
  EXPECT_TRUE(HasReason(store_->Remove(kJob, 1, 1, latest_), Reason::kRootInUse));
  EXPECT_TRUE(std::filesystem::exists(Bin(1)));
}

TEST_F(DeletionStoreTest, Pin_PinnedAndUnpinned_ProtectsBetween) {
  Commit(1);
  Commit(2);
  ASSERT_TRUE(store_->Pin(kJob, {1, true, "in the paper"}).ok());
  ASSERT_TRUE(store_->Pin(kJob, {1, true, "again"}).ok());
  EXPECT_TRUE(checkpoints_->ReadStep(kJob, 1).pinned);
  EXPECT_TRUE(HasReason(Delete(1).status(), Reason::kCheckpointPinned));
  ASSERT_TRUE(store_->Pin(kJob, {1, false, ""}).ok());
  EXPECT_FALSE(checkpoints_->ReadStep(kJob, 1).pinned);
  EXPECT_TRUE(Delete(1).ok());
  EXPECT_TRUE(HasReason(store_->Pin(kJob, {1, true, ""}).status(), Reason::kNotCommitted)) << "it is deleted";
}

TEST_F(DeletionStoreTest, Tag_TaggedAndUntagged_ProtectsBetween) {
  Commit(1);
  Commit(2);
  ASSERT_TRUE(store_->Tag(kJob, {"paper", 1}).ok());
  ASSERT_TRUE(store_->Tag(kJob, {"paper", 1}).ok()) << "again";
  ASSERT_TRUE(store_->Tag(kJob, {"best", 1}).ok());
  EXPECT_EQ(checkpoints_->ReadStep(kJob, 1).tags, (std::vector<std::string>{"best", "paper"}));
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

// The first look at the step finds nothing, and the second one finds the commit.
TEST_F(DeletionStoreTest, PinOrTag_CommittedWhileItIsLookedAt_IsDone) {
  Commit(1);
  const auto miss = [](int times) {
    failing_calls.missing_file = "000000000001";
    failing_calls.opens_that_miss_it = times;
  };
  miss(1);
  EXPECT_TRUE(store_->Pin(kJob, {1, true, ""}).ok());
  EXPECT_EQ(failing_calls.opens_that_miss_it, 0);
  EXPECT_TRUE(checkpoints_->ReadStep(kJob, 1).pinned);
  miss(1);
  EXPECT_TRUE(store_->Tag(kJob, {"paper", 1}).ok());
  EXPECT_EQ(failing_calls.opens_that_miss_it, 0);
  EXPECT_EQ(checkpoints_->ReadStep(kJob, 1).tags, std::vector<std::string>{"paper"});
}

// The change stands, and the sync of its directory fails once: it is settled, and told as done.
TEST_F(DeletionStoreTest, AnyChange_SyncOfItsDirectoryFailsOnce_IsDone) {
  for (int64_t step = 1; step <= 4; ++step) Commit(step);
  ASSERT_TRUE(store_->Pin(kJob, {1, true, ""}).ok());
  ASSERT_TRUE(store_->Tag(kJob, {"paper", 2}).ok());
  const auto once = [] { failing_calls.directory_syncs = 1; };
  once();
  EXPECT_TRUE(store_->Pin(kJob, {3, true, "note"}).ok());
  EXPECT_EQ(failing_calls.directory_syncs, 0);
  EXPECT_TRUE(checkpoints_->ReadStep(kJob, 3).pinned);
  once();
  EXPECT_TRUE(store_->Pin(kJob, {1, false, ""}).ok());
  EXPECT_EQ(failing_calls.directory_syncs, 0);
  EXPECT_FALSE(checkpoints_->ReadStep(kJob, 1).pinned);
  once();
  EXPECT_TRUE(store_->Tag(kJob, {"paper", std::nullopt}).ok());
  EXPECT_EQ(failing_calls.directory_syncs, 0);
  EXPECT_TRUE(checkpoints_->ReadStep(kJob, 2).tags.empty());
  PrunePolicy policy;
  policy.keep_last = 2;
  once();
  EXPECT_TRUE(store_->SetPolicy(kJob, {policy}).ok());
  EXPECT_EQ(failing_calls.directory_syncs, 0);
}

// No sync succeeds: nobody may say that it was refused, and a change that does not stand is refused all the same.
TEST_F(DeletionStoreTest, AnyChange_NoSyncSucceeds_IsUnknown) {
  for (int64_t step = 1; step <= 3; ++step) Commit(step);
  ASSERT_TRUE(store_->Pin(kJob, {1, true, ""}).ok());
  PrunePolicy policy;
  policy.keep_last = 2;
  failing_calls.directory_syncs = 1000;
  for (const absl::Status& told :
       {store_->Pin(kJob, {1, false, ""}).status(), store_->SetPolicy(kJob, {policy}).status()}) {
    EXPECT_FALSE(told.ok());
    EXPECT_EQ(MetadataOf(told)["outcome"], "unknown") << told;
  }
  failing_calls.directory_syncs = 0;
  EXPECT_FALSE(checkpoints_->ReadStep(kJob, 1).pinned);
}

TEST_F(DeletionStoreTest, Delete_SyncOfTheRecordFails_IsSettledOrUnknown) {
  for (int64_t step = 1; step <= 4; ++step) Commit(step);
  // The syncs before that of the record: of the step's directory, and of the one that remains.
  for (int64_t step = 1; step <= 2; ++step) {
    bool settled = false;
    for (int syncs = 0; syncs < 8 && !settled; ++syncs) {
      failing_calls.directory_syncs = 0;
      failing_calls.directory_syncs_to_pass = syncs;
      failing_calls.directory_syncs = step == 1 ? 1 : 1000;
      const absl::Status told = Delete(step).status();
      const bool deleted = checkpoints_->ReadStep(kJob, step).state() == StepRecord::State::kNothing;
      failing_calls.directory_syncs = 0;
      if (!deleted) {
        EXPECT_FALSE(told.ok()) << syncs;
        continue;
      }
      settled = true;
      EXPECT_EQ(told.ok(), step == 1) << syncs << ": " << told;
      EXPECT_EQ(MetadataOf(told).contains("outcome"), step == 2) << told;
    }
    EXPECT_TRUE(settled);
    EXPECT_TRUE(Delete(step).ok()) << "it may be repeated";
  }
}

// The call that gives the record its name fails, and may have done its work on the server of the file system.
TEST_F(DeletionStoreTest, Delete_LinkOfTheRecordFails_IsUnknownThoughNothingStands) {
  for (int64_t step = 1; step <= 2; ++step) Commit(step);
  failing_calls.links = 1000;
  const absl::Status told = Delete(1).status();
  failing_calls.links = 0;
  EXPECT_FALSE(told.ok());
  EXPECT_EQ(MetadataOf(told)["outcome"], "unknown") << told;
  EXPECT_EQ(checkpoints_->ReadStep(kJob, 1).state(), StepRecord::State::kCommitted);
  EXPECT_TRUE(Delete(1).ok()) << "it may be repeated";
}

TEST_F(DeletionStoreTest, Delete_RecordCannotBeReadBack_IsUnknown) {
  for (int64_t step = 1; step <= 2; ++step) Commit(step);
  const std::string path = DeletionPath(kJob, 1, 1);
  failing_calls.missing_file = path.substr(path.rfind('/') + 1);
  failing_calls.open_error = EACCES;
  bool told_so = false;
  // The first ones come before the record is there.
  for (int opens = 0; opens < 8 && !told_so; ++opens) {
    failing_calls.opens_to_pass = opens;
    failing_calls.opens_that_miss_it = 100;
    const absl::Status told = Delete(1).status();
    failing_calls.opens_to_pass = failing_calls.opens_that_miss_it = 0;
    if (checkpoints_->ReadStep(kJob, 1).state() == StepRecord::State::kCommitted) continue;
    told_so = true;
    EXPECT_EQ(MetadataOf(told)["outcome"], "unknown") << told;
  }
  EXPECT_TRUE(told_so);
}

TEST_F(DeletionStoreTest, Prune_AnOutcomeIsUnknownOnTheWay_TellsWhatWasDeletedBefore) {
  bool told = false;
  for (int syncs = 0; syncs < 40 && !told; ++syncs) {
    for (int64_t step = 1; step <= 4; ++step) Commit(step, static_cast<uint32_t>(syncs) + 1);
    failing_calls.directory_syncs_to_pass = syncs;
    failing_calls.directory_syncs = 1000;
    const auto pruned = store_->Prune(kJob, {PrunePolicy{.keep_last = 1}});
    failing_calls.directory_syncs = 0;
    if (!pruned.ok() || pruned->ended_by.ok()) continue;
    told = true;
    EXPECT_EQ(MetadataOf(pruned->ended_by)["outcome"], "unknown") << pruned->ended_by;
    ASSERT_FALSE(pruned->deleted.empty());
    for (const PruneChoice& choice : pruned->choices) {
      const bool deleted = std::any_of(pruned->deleted.begin(), pruned->deleted.end(),
                                       [&](const StoredAttempt& each) { return each.step == choice.step; });
      EXPECT_EQ(choice.prune, deleted) << choice.step << " " << choice.why;
      EXPECT_EQ(choice.why.empty(), deleted) << choice.step;
    }
  }
  EXPECT_TRUE(told);
}

TEST_F(DeletionStoreTest, Tag_AnotherStepHasIt_IsRefused) {
  Commit(1);
  Commit(2);
  ASSERT_TRUE(store_->Tag(kJob, {"best", 1}).ok());
  const absl::Status refused = store_->Tag(kJob, {"best", 2}).status();
  EXPECT_TRUE(HasReason(refused, Reason::kBadRequest)) << refused;
  EXPECT_TRUE(checkpoints_->ReadStep(kJob, 2).tags.empty());
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
  lock_.held = MakeError(Reason::kRootInUse, "another one");
  EXPECT_TRUE(HasReason(store_->Tag(kJob, {"best", 1}).status(), Reason::kRootInUse));
  EXPECT_TRUE(checkpoints_->ReadStep(kJob, 1).tags.empty());
}

TEST_F(DeletionStoreTest, Delete_TheLatestIsKnown_IsLookedAtFirstAndNotBelieved) {
  for (int64_t step = 1; step <= 4; ++step) Commit(step);
  latest_ = 3;
  ASSERT_TRUE(Delete(1).ok());
  EXPECT_NE(std::string(checkpoints_->ReadAttempt(kJob, 1, 1).error.message()).find("step 3 remained"),
            std::string::npos)
      << checkpoints_->ReadAttempt(kJob, 1, 1).error;
  std::filesystem::remove(Bin(3));
  ASSERT_TRUE(Delete(2).ok());
  EXPECT_NE(std::string(checkpoints_->ReadAttempt(kJob, 2, 1).error.message()).find("step 4 remained"),
            std::string::npos);
  latest_ = 4;
  EXPECT_TRUE(HasReason(Delete(4).status(), Reason::kLastCheckpoint)) << "3 lacks a file";
}

TEST_F(DeletionStoreTest, Recover_EndedBetweenRecordAndRemoval_TheFilesAreLeftovers) {
  Commit(1);
  Commit(2);
  ASSERT_TRUE(Delete(1).ok());
  Open();
  const auto recovered = checkpoints_->Recover(kJob);
  ASSERT_TRUE(recovered.ok());
  ASSERT_EQ(recovered->size(), 2u);
  EXPECT_EQ((*recovered)[0].step, 1);
  EXPECT_TRUE((*recovered)[0].deleted && (*recovered)[0].left_over());
  EXPECT_FALSE((*recovered)[1].left_over());
  ASSERT_TRUE(store_->Remove(kJob, 1, 1, latest_).ok());
  EXPECT_FALSE((*checkpoints_->Recover(kJob))[0].left_over());
}

}  // namespace
}  // namespace cairn
