// Tests prunes of the DeletionStore.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "common/file/testing/failing_calls.h"
#include "common/format/checkpoint_path.h"
#include "common/status/reason.h"
#include "store/write/deletion_store.h"
#include "store/write/testing/deletion_fixture.h"

namespace cairn {
namespace {

using DeletionStorePruneTest = DeletionFixture;

TEST_F(DeletionStorePruneTest, Prune_KeepBest_TheBestByTheManifestsStays) {
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

TEST_F(DeletionStorePruneTest, Prune_APolicyIsGiven_DeletesTheRest) {
  for (int64_t step : {10, 20, 30, 40, 50}) Commit(step);
  std::filesystem::remove(Bin(20));
  Damage(Outcome(50));
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
  EXPECT_TRUE(pruned->deleted[0].deleted_by_rules);
}

TEST_F(DeletionStorePruneTest, Prune_StepsAwaitTheMirror_KeepsAFewOfThem) {
  for (int64_t step = 1; step <= 7; ++step) Commit(step);
  PruneSteps prune{PrunePolicy{.keep_last = 1}};
  prune.awaits_mirror = [](int64_t step) { return step != 5; };
  ASSERT_TRUE(store_->Prune(kJob, prune).ok());
  EXPECT_EQ(Listed(), (std::vector<int64_t>{3, 4, 6, 7}));
}

TEST_F(DeletionStorePruneTest, Prune_StorageIsSlow_StopsAndGoesOn) {
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
    // A step that is pinned while a prune goes on stays.
    if (actions == 3) {
      ASSERT_TRUE(store_->Pin(kJob, {7, true, ""}).ok());
    }
    ASSERT_LT(actions, 9);
  }
  EXPECT_GE(actions, 5);
  EXPECT_EQ(Listed(), (std::vector<int64_t>{2, 7, 9})) << "2 lacks a file";
}

// As on slow storage: half a second goes by between two looks at it.
class SlowClock final : public Clock {
 public:
  absl::Time SteadyNow() const override { return now_ += DeletionStore::kPruneTime; }
  absl::Time WallNow() const override { return SteadyNow(); }

 private:
  mutable absl::Time now_ = absl::UnixEpoch();
};

TEST_F(DeletionStorePruneTest, Prune_DryRunOnSlowStorage_StopsAndGoesOnAndDeletesNothing) {
  for (int64_t step = 1; step <= 9; ++step) Commit(step);
  std::filesystem::remove(Bin(2));
  const PrunePolicy policy{.keep_last = 1};
  const auto whole = store_->Prune(kJob, {policy, /*dry_run=*/true});
  ASSERT_TRUE(whole.ok() && !whole->stopped_after.has_value()) << whole.status();
  const SlowClock clock;
  DeletionStore slow(*storage_, *checkpoints_, clock, lock_);
  PruneSteps prune{policy, /*dry_run=*/true};
  std::vector<PruneChoice> told;
  int actions = 1;
  for (;; ++actions) {
    const auto part = slow.Prune(kJob, prune);
    ASSERT_TRUE(part.ok()) << part.status();
    EXPECT_TRUE(part->deleted.empty());
    const int64_t end = part->stopped_after.value_or(9);
    for (const PruneChoice& choice : part->choices) {
      if (choice.step > prune.after.value_or(0) && choice.step <= end) told.push_back(choice);
    }
    if (!part->stopped_after.has_value()) break;
    prune.after = part->stopped_after;
    ASSERT_LT(actions, 9);
  }
  EXPECT_EQ(actions, 8) << "one checkpoint each time";
  EXPECT_EQ(told, whole->choices);
  EXPECT_EQ(Listed().size(), 9u);
}

TEST_F(DeletionStorePruneTest, Prune_StepsAreGiven_LooksAtNoOthers) {
  for (int64_t step = 1; step <= 5; ++step) Commit(step);
  PruneSteps prune{PrunePolicy{.keep_last = 1}};
  prune.steps = {1, 2, 5, 7};
  const auto pruned = store_->Prune(kJob, prune);
  ASSERT_TRUE(pruned.ok()) << pruned.status();
  EXPECT_EQ(pruned->choices.size(), 3u) << "there is no step 7";
  EXPECT_EQ(Listed(), (std::vector<int64_t>{3, 4, 5}));
}

TEST_F(DeletionStorePruneTest, Prune_StepIsInUse_Stays) {
  for (int64_t step : {10, 20, 30}) Commit(step);
  ASSERT_TRUE(store_->Prune(kJob, {PrunePolicy{.keep_last = 1}, /*dry_run=*/false, {10}}).ok());
  EXPECT_EQ(Listed(), (std::vector<int64_t>{10, 30}));
}

TEST_F(DeletionStorePruneTest, Prune_TheJobsPolicy_IsTheOneThatWasSetLast) {
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

TEST_F(DeletionStorePruneTest, Prune_TheJobsPolicyCannotBeRead_DeletesNothing) {
  for (int64_t step : {10, 20, 30}) Commit(step);
  ASSERT_TRUE(store_->SetPolicy(kJob, {PrunePolicy{.keep_last = 1}}).ok());
  Damage(root_ + "/" + RetentionPath(kJob));
  EXPECT_TRUE(HasReason(store_->Prune(kJob, PruneSteps{}).status(), Reason::kRetentionUnreadable));
  EXPECT_EQ(Listed().size(), 3u);
  const std::string path = RetentionPath(kJob);
  failing_calls.missing_file = path.substr(path.rfind('/') + 1);
  failing_calls.open_error = EIO;
  failing_calls.opens_that_miss_it = 1;
  EXPECT_TRUE(HasReason(store_->Prune(kJob, PruneSteps{}).status(), Reason::kStorageError));
  EXPECT_EQ(Listed().size(), 3u);
}

}  // namespace
}  // namespace cairn
