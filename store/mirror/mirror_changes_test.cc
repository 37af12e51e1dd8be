#include "store/mirror/mirror_changes.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "common/status/reason.h"
#include "store/mirror/testing/running_mirror.h"
#include "store/write/deletion_store.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;
using MirrorChangesTest = RunningMirror;

TEST_F(MirrorChangesTest, Delete_ByAPerson_FollowsAndByRulesDoesNot) {
  for (const int64_t step : {1, 2, 3}) Commit(step);
  Begin();
  for (const int64_t step : {1, 2, 3}) ASSERT_TRUE(BecomesMirrored(step));
  ASSERT_TRUE(Delete(1, /*by_rules=*/true).ok());
  ASSERT_TRUE(Delete(2, /*by_rules=*/false).ok());
  EXPECT_TRUE(Becomes([&] { return !fs::exists(AtMirror(AttemptDirectory(kJob, 2, 1))); }));
  EXPECT_EQ(AtMirrorNow(1).state(), StepRecord::State::kCommitted);
  EXPECT_TRUE(Becomes([&] { return one_->view().OnlyThere(kJob).size() == 1; }));
  EXPECT_EQ(one_->view().OnlyThere(kJob)[0].step(), 1);
  EXPECT_TRUE(one_->reader().Find(kJob, 1).ok());
  EXPECT_TRUE(HasReason(one_->reader().Find(kJob, 2).status(), Reason::kNotCommitted));
  // A step that only the mirror has.
  EXPECT_TRUE(one_->changes().Change(kJob, {PinStep{1}})->has_value());
  EXPECT_TRUE(HasReason(one_->changes().Change(kJob, {DeleteStep{1, "a person"}}).status(), Reason::kCheckpointPinned));
  EXPECT_TRUE(one_->changes().Change(kJob, {PinStep{1, false}})->has_value());
  EXPECT_TRUE(one_->changes().Change(kJob, {TagStep{"gold", 1}})->has_value());
  EXPECT_EQ(one_->view().OnlyThere(kJob)[0].tags(0), "gold");
  EXPECT_EQ(one_->view().OnlyThereWithTag(kJob, "gold"), 1);
  EXPECT_EQ((*one_->changes().Change(kJob, {TagStep{"gold"}}))->untagged, std::vector<int64_t>{1});
  EXPECT_TRUE(one_->changes().Change(kJob, {DeleteStep{1, "a person"}})->has_value());
  EXPECT_EQ(AtMirrorNow(1).state(), StepRecord::State::kNothing) << "at once, and durably";
  for (const int64_t step : {2, 3, 9})
    EXPECT_FALSE(one_->changes().Change(kJob, {DeleteStep{step, "a person"}})->has_value());
}

TEST_F(MirrorChangesTest, NoteDeleted_ByRules_IsKnownBeforeTheNextLook) {
  for (const int64_t step : {1, 2}) Commit(step);
  Begin();
  ASSERT_TRUE(BecomesMirrored(1) && BecomesMirrored(2));
  const ReserveAttempt save = {.step = 1};
  EXPECT_TRUE(one_->changes().MayReplace(kJob, save).ok()) << "the root decides";
  DeletionStore deletions(*root_, checkpoints_, Clock::Real(), lock_);
  const auto deleted = deletions.Delete(kJob, DeleteStep{1, "rules", /*by_rules=*/true}, std::nullopt);
  ASSERT_TRUE(deleted.ok());
  one_->NoteDeleted(kJob, deleted->deleted);
  EXPECT_TRUE(HasReason(one_->changes().MayReplace(kJob, save), Reason::kStepCommitted));
  ASSERT_EQ(one_->view().OnlyThere(kJob).size(), 1u);
  EXPECT_EQ(one_->view().OnlyThere(kJob)[0].step(), 1);
  // A look that had read the root before.
  MirrorView view("mirror", options_.rule, absl::Minutes(1));
  MirrorRecords before;
  before.root = {checkpoints_.ReadStep(kJob, 2)};
  before.mirror = {AtMirrorNow(2)};
  const absl::Time began = absl::UnixEpoch() + absl::Seconds(10);
  view.Note(kJob, {began, std::nullopt, before}, began);
  StoredAttempt gone = *before.root[0].deciding();
  gone.deleted = gone.deleted_by_rules = true;
  view.NoteDeleted(kJob, gone, began + absl::Seconds(2));
  EXPECT_EQ(view.OnlyThere(kJob).size(), 1u);
  view.Note(kJob, {began + absl::Seconds(1), std::nullopt, before}, began + absl::Seconds(3));
  EXPECT_EQ(view.OnlyThere(kJob).size(), 1u) << "it began before the deletion";
  view.Note(kJob, {began + absl::Seconds(3), std::nullopt, before}, began + absl::Seconds(4));
  EXPECT_TRUE(view.OnlyThere(kJob).empty()) << "it began after it";
}

TEST_F(MirrorChangesTest, Delete_TheRootsRecordWasDamaged_TheCopyStaysUntilAPersonDeletesItToo) {
  for (const int64_t step : {1, 2, 3}) Commit(step);
  Begin();
  for (const int64_t step : {1, 2, 3}) ASSERT_TRUE(BecomesMirrored(step));
  for (const int64_t step : {1, 2}) fs::resize_file(AtRoot(OutcomePath(kJob, step, 1)), 10);
  ASSERT_TRUE(Delete(1, /*by_rules=*/false).ok());
  ASSERT_TRUE(Becomes([&] { return one_->view().OnlyThere(kJob).size() == 1; }));
  EXPECT_NE(one_->view().OnlyThere(kJob)[0].error().message().find("may have another checkpoint"), std::string::npos);
  EXPECT_EQ(AtMirrorNow(1).state(), StepRecord::State::kCommitted) << "it may be that of a root that was lost";
  EXPECT_TRUE(HasReason(one_->reader().Find(kJob, 1).status(), Reason::kNotCommitted)) << "nobody gets it";
  EXPECT_TRUE(one_->changes().Change(kJob, {DeleteStep{1, "a person"}})->has_value());
  EXPECT_EQ(AtMirrorNow(1).state(), StepRecord::State::kNothing);
  // A later commit takes the place of a damaged one, and what the mirror has of that number stays too.
  Commit(2, 2);
  one_->Look(kJob);
  EXPECT_TRUE(Becomes([&] { return IsCopied(2, 2); }));
  EXPECT_TRUE(fs::exists(AtMirror(File(2))));
}

}  // namespace
}  // namespace cairn
