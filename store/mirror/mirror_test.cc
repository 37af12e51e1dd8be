#include "store/mirror/mirror.h"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>

#include "common/status/reason.h"
#include "store/mirror/testing/counted_storage.h"
#include "store/mirror/testing/running_mirror.h"
#include "store/write/deletion_store.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;
using State = v1::MirroredCheckpoint;
using MirrorTest = RunningMirror;

TEST_F(MirrorTest, Look_CommittedSteps_AreCopiedAndARestartGoesOn) {
  Commit(1);
  Commit(2);
  Begin();
  EXPECT_TRUE(BecomesMirrored(1));
  EXPECT_TRUE(BecomesMirrored(2));
  Commit(3);
  EXPECT_EQ(StateOf(3), State::WAITING) << "it is newer than the last look";
  one_->Look(kJob);
  EXPECT_TRUE(BecomesMirrored(3));
  for (const int64_t step : {1, 2, 3}) EXPECT_TRUE(IsCopied(step)) << step;
  EXPECT_EQ(one_->view().counts().steps_copied, 3u);
  Begin();
  EXPECT_TRUE(BecomesMirrored(1));
  EXPECT_EQ(one_->view().counts().steps_copied, 0u) << "all is there";
  EXPECT_EQ(one_->view().DescribeMirror(kJob).steps_waiting(), 0u);
}

// One look at all of them asks storage at least four times for each step.
TEST_F(MirrorTest, Look_WhatHasChangedIsNamed_CostsAsMuchAsThatAndNotAsAllSteps) {
  constexpr int64_t kSteps = 2'000;
  constexpr int64_t kCopies = 100;
  CommitRecords(1, kSteps - kCopies);
  ASSERT_TRUE(mirror_->MakeDirectories(".cairn").ok());
  ASSERT_TRUE(mirror_->PutIfAbsent(".cairn/mirror-of", options_.root).ok());
  std::atomic<uint64_t> calls = 0;
  CountedStorage root(*root_, calls);
  CheckpointStore checkpoints(root);
  options_.open = [&](bool) { return std::make_unique<CountedStorage>(*mirror_, calls); };
  Mirror mirror(options_, checkpoints, Clock::Real());
  ASSERT_TRUE(mirror.Start().ok());
  const auto has = [&](int64_t step) { return mirror.view().Describe(kJob, step).state() == State::MIRRORED; };
  ASSERT_TRUE(Becomes([&] { return has(1); }));
  const uint64_t first_look = calls;
  EXPECT_GE(first_look, 4u * kSteps);
  for (int64_t step = kSteps - kCopies + 1; step <= kSteps; ++step) {
    Commit(step);
    if (step % 10 == 0) {
      ASSERT_TRUE(root_->PutIfAbsent(PinPath(kJob, step), "note\n").ok());
    }
    mirror.Look(kJob, {step});
    EXPECT_TRUE(Becomes([&] { return has(step); })) << step;
  }
  EXPECT_TRUE(Becomes([&] { return AtMirrorNow(kSteps).pinned; }));
  RecordProperty("calls_for_each_copy", static_cast<int>((calls - first_look) / kCopies));
  EXPECT_LE(calls - first_look, 100u * kCopies) << "a copy of two files takes some fifty";
  EXPECT_TRUE(mirror.Stop(absl::Seconds(20)));
}

TEST_F(MirrorTest, Start_TheMirrorIsDown_IsTriedAgain) {
  Commit(1);
  down_ = true;
  Begin();
  EXPECT_TRUE(Becomes([&] { return one_->view().DescribeMirror(kJob).has_error(); }));
  EXPECT_EQ(StateOf(1), State::STATE_UNSPECIFIED);
  EXPECT_TRUE(one_->view().Awaits(kJob, 1));
  EXPECT_FALSE(one_->view().counts().reachable);
  EXPECT_TRUE(HasReason(one_->reader().Find(kJob, 1).status(), Reason::kStorageError));
  down_ = false;
  EXPECT_TRUE(BecomesMirrored(1));
  EXPECT_FALSE(one_->view().DescribeMirror(kJob).has_error());
  EXPECT_FALSE(one_->view().Awaits(kJob, 1));
}

TEST_F(MirrorTest, Run_TheMirrorGoesAway_IsNoticedWithoutWork) {
  Commit(1);
  options_.ping = absl::Milliseconds(10);
  Begin();
  ASSERT_TRUE(BecomesMirrored(1));
  fs::rename(directory_ + "/mirror", directory_ + "/away");
  EXPECT_TRUE(Becomes([&] { return one_->view().DescribeMirror(kJob).has_error(); }));
  fs::rename(directory_ + "/away", directory_ + "/mirror");
  EXPECT_TRUE(Becomes([&] { return !one_->view().DescribeMirror(kJob).has_error(); }));
}

TEST_F(MirrorTest, Start_AnotherOneHoldsTheMirror_IsTriedAgain) {
  Commit(1);
  auto held = mirror_->TakeRoot();
  ASSERT_TRUE(held.ok());
  Begin();
  EXPECT_TRUE(Becomes(
      [&] { return one_->view().DescribeMirror(kJob).error().message().find("process") != std::string::npos; }));
  EXPECT_FALSE(IsCopied(1));
  held->reset();
  EXPECT_TRUE(BecomesMirrored(1));
}

TEST_F(MirrorTest, Look_ADamagedStep_IsToldAndDoesNotKeepOthersBack) {
  Commit(1);
  Commit(2);
  Damage(AtRoot(File(2)), 4100);
  Begin();
  EXPECT_TRUE(BecomesMirrored(1));
  EXPECT_TRUE(Becomes([&] { return StateOf(2) == State::FAILED; }));
  EXPECT_EQ(AtMirrorNow(2).state(), StepRecord::State::kNothing);
  EXPECT_TRUE(one_->view().Awaits(kJob, 2)) << "nobody else has the step";
  EXPECT_FALSE(one_->reader().MayRulesDelete(kJob, 2));
}

TEST_F(MirrorTest, Look_KeepLast_OlderOnesGoButForPinnedOnes) {
  for (const int64_t step : {1, 2, 3, 4}) Commit(step);
  ASSERT_TRUE(root_->PutIfAbsent(PinPath(kJob, 1), "note\n").ok());
  Begin("all", 1);
  EXPECT_TRUE(BecomesMirrored(4));
  EXPECT_TRUE(BecomesMirrored(1)) << "it is pinned";
  Commit(5);
  one_->Look(kJob);
  EXPECT_TRUE(Becomes([&] { return !fs::exists(AtMirror(AttemptDirectory(kJob, 4, 1))); }));
  EXPECT_TRUE(IsCopied(5));
  EXPECT_TRUE(IsCopied(1));
  EXPECT_TRUE(fs::exists(AtMirror(PinPath(kJob, 1))));
  EXPECT_EQ(StateOf(4), State::LEFT_OUT);
  EXPECT_EQ(StateOf(3), State::LEFT_OUT);
  Begin("all");
  for (const int64_t step : {2, 3, 4})
    EXPECT_TRUE(BecomesMirrored(step)) << "another rule wants what the last one did not";
}

TEST_F(MirrorTest, Look_TheOnlyCopyIsDeleted_AnotherStepTakesItsPlace) {
  Begin("all", 1);
  for (const int64_t step : {1, 2, 3}) {
    Commit(step);
    one_->Look(kJob);
    ASSERT_TRUE(BecomesMirrored(step));
  }
  EXPECT_TRUE(Becomes([&] { return AtMirrorNow(2).state() == StepRecord::State::kNothing; }));
  ASSERT_TRUE(Delete(3, /*by_rules=*/false).ok());
  EXPECT_TRUE(BecomesMirrored(2)) << "rules had deleted it there";
  EXPECT_TRUE(Becomes([&] { return AtMirrorNow(3).state() == StepRecord::State::kNothing; }));
  EXPECT_TRUE(IsCopied(2));
  ASSERT_TRUE(root_->PutIfAbsent(PinPath(kJob, 1), "note\n").ok());
  one_->Look(kJob);
  EXPECT_TRUE(BecomesMirrored(1)) << "it is pinned now";
}

TEST_F(MirrorTest, Look_RulesDeleteAnOverwrittenStepBeforeItIsCopied_TheEarlierCommitStays) {
  Commit(1);
  Commit(2);
  Begin();
  ASSERT_TRUE(BecomesMirrored(1) && BecomesMirrored(2));
  End();
  Commit(1, 2);
  DeletionStore deletions(*root_, checkpoints_, Clock::Real(), lock_);
  ASSERT_TRUE(deletions.Delete(kJob, DeleteReplaced{1}).ok());
  ASSERT_TRUE(deletions.Delete(kJob, DeleteStep{1, "rules", /*by_rules=*/true}, std::nullopt).ok());
  Commit(3);
  Begin();
  ASSERT_TRUE(BecomesMirrored(3));
  ASSERT_TRUE(Becomes([&] { return one_->view().counts().steps_waiting == 0; }));
  End();
  EXPECT_EQ(AtMirrorNow(1).state(), StepRecord::State::kCommitted);
  EXPECT_TRUE(fs::exists(AtMirror(File(1))));
  Begin();
  ASSERT_TRUE(BecomesMirrored(3));
  EXPECT_TRUE(HasReason(one_->reader().Find(kJob, 1).status(), Reason::kNotCommitted))
      << "nobody gets it for the later commit";
  EXPECT_TRUE(one_->view().OnlyThere(kJob).empty());
  // A person may delete it.
  EXPECT_TRUE(one_->changes().Change(kJob, {DeleteStep{1, "a person"}})->has_value());
  EXPECT_EQ(AtMirrorNow(1).state(), StepRecord::State::kNothing);
}

TEST_F(MirrorTest, Look_ACopyThatOnlyTheMirrorHasCannotBeRead_KeepsNothingBack) {
  for (const int64_t step : {1, 2}) Commit(step);
  Begin();
  for (const int64_t step : {1, 2}) ASSERT_TRUE(BecomesMirrored(step));
  ASSERT_TRUE(Delete(1, /*by_rules=*/true).ok());
  End();
  fs::remove(AtMirror(File(1)));
  fs::create_directory(AtMirror(File(1)));
  Begin();
  Commit(3);
  one_->Look(kJob);
  EXPECT_TRUE(BecomesMirrored(3));
  EXPECT_TRUE(Becomes([&] { return one_->view().OnlyThere(kJob).size() == 1; }));
  EXPECT_FALSE(one_->view().DescribeMirror(kJob).has_error());
}

TEST_F(MirrorTest, Look_AnotherRootsCheckpoint_StaysAndIsTold) {
  Commit(1);
  Begin();
  ASSERT_TRUE(BecomesMirrored(1));
  End();
  const std::string before = ReadWhole(AtMirror(OutcomePath(kJob, 1, 1)));
  fs::remove_all(AtRoot(kJob));
  Commit(1);
  Commit(2);
  Begin();
  EXPECT_TRUE(BecomesMirrored(2));
  EXPECT_TRUE(Becomes([&] { return StateOf(1) == State::FAILED; }));
  EXPECT_EQ(ReadWhole(AtMirror(OutcomePath(kJob, 1, 1))), before);
  EXPECT_EQ(one_->view().HighestAttempt(kJob, 1), 1u) << "a save of step 1 takes attempt 2";
}

TEST_F(MirrorTest, Look_AKilledCopyThatNobodyWants_IsRemoved) {
  Commit(1);
  Commit(2);
  Begin();
  ASSERT_TRUE(BecomesMirrored(1) && BecomesMirrored(2));
  End();
  fs::remove(AtMirror(OutcomePath(kJob, 1, 1)));
  Begin("newest");
  EXPECT_TRUE(Becomes([&] { return !fs::exists(AtMirror(File(1))); }));
  EXPECT_TRUE(IsCopied(2));
}

TEST_F(MirrorTest, Copy_HasFailed_OthersGoOnAndItIsTriedAgain) {
  Commit(1);
  Damage(AtRoot(File(1)), 4100);
  Begin();
  ASSERT_TRUE(Becomes([&] { return StateOf(1) == State::FAILED; }));
  absl::SleepFor(3 * options_.longest_retry);
  Commit(2);
  one_->Look(kJob);
  EXPECT_TRUE(BecomesMirrored(2));
  EXPECT_TRUE(Becomes([&] { return StateOf(1) == State::FAILED; }));
  Damage(AtRoot(File(1)), 4100);  // which brings the byte back
  EXPECT_TRUE(BecomesMirrored(1)) << "when its own time has come";
}

TEST_F(MirrorTest, Look_WhileALongCopyRuns_GoesOn) {
  for (const int64_t step : {1, 2}) Commit(step);
  Begin();
  ASSERT_TRUE(BecomesMirrored(1) && BecomesMirrored(2));
  hold_writes_ = true;
  Commit(3);
  one_->Look(kJob);
  ASSERT_TRUE(Becomes([&] { return StateOf(3) == State::COPYING; }));
  ASSERT_TRUE(Delete(1, /*by_rules=*/true).ok());
  EXPECT_TRUE(Becomes([&] { return one_->view().OnlyThere(kJob).size() == 1; }));
  EXPECT_TRUE(one_->changes().Change(kJob, {PinStep{1}})->has_value());
  EXPECT_TRUE(AtMirrorNow(1).pinned);
  ASSERT_TRUE(Delete(2, /*by_rules=*/true).ok());
  EXPECT_TRUE(one_->changes().Change(kJob, {DeleteStep{2, "a person"}})->has_value());
  EXPECT_EQ(AtMirrorNow(2).state(), StepRecord::State::kNothing);
  EXPECT_EQ(StateOf(3), State::COPYING);
  hold_writes_ = false;
  EXPECT_TRUE(BecomesMirrored(3));
  EXPECT_TRUE(IsCopied(3));
}

TEST_F(MirrorTest, Look_AnotherJobCannotBeRead_KeepsNothingBack) {
  Commit(1);
  fs::create_directory(AtRoot("bad"));
  fs::create_directory_symlink("/", AtMirror("bad"));
  ASSERT_TRUE(mirror_->MakeDirectories(".cairn").ok());
  ASSERT_TRUE(mirror_->PutIfAbsent(".cairn/mirror-of", options_.root).ok());
  Begin();
  one_->Look("bad");
  EXPECT_TRUE(Becomes(
      [&] { return one_->view().DescribeMirror("bad").error().message().find(AtMirror("bad")) != std::string::npos; }));
  one_->Look("bad");
  EXPECT_TRUE(BecomesMirrored(1));
  Commit(2);
  one_->Look(kJob);
  EXPECT_TRUE(BecomesMirrored(2));
  EXPECT_FALSE(one_->view().DescribeMirror(kJob).has_error());
  fs::remove(AtMirror("bad"));
  EXPECT_TRUE(Becomes([&] { return one_->view().Trouble("bad").ok(); }));
}

TEST_F(MirrorTest, Look_AnotherCommitOfADeletedStep_StaysAndIsTold) {
  Commit(1);
  Begin();
  ASSERT_TRUE(BecomesMirrored(1));
  End();
  fs::remove_all(AtRoot(kJob));
  Commit(1);
  Commit(2);
  DeletionStore deletions(*root_, checkpoints_, Clock::Real(), lock_);
  ASSERT_TRUE(deletions.Delete(kJob, DeleteStep{1, "a person"}, std::nullopt).ok());
  Begin();
  ASSERT_TRUE(BecomesMirrored(2));
  EXPECT_EQ(AtMirrorNow(1).state(), StepRecord::State::kCommitted) << "nobody has deleted that one";
  const auto there = one_->view().OnlyThere(kJob);
  ASSERT_EQ(there.size(), 1u);
  EXPECT_NE(there[0].error().message().find("another checkpoint than the one that was demo@1"), std::string::npos);
  EXPECT_TRUE(HasReason(one_->reader().Find(kJob, 1).status(), Reason::kNotCommitted));
  EXPECT_TRUE(one_->changes().Change(kJob, {DeleteStep{1, "a person"}})->has_value());
  EXPECT_EQ(AtMirrorNow(1).state(), StepRecord::State::kNothing);
}

TEST_F(MirrorTest, Look_AnEarlierCommitOfALostRootIsOverwritten_BothStay) {
  Commit(1);
  Begin();
  ASSERT_TRUE(BecomesMirrored(1));
  End();
  fs::remove_all(AtRoot(kJob));
  Commit(1);
  Commit(1, 2);
  Begin();
  EXPECT_TRUE(Becomes([&] { return StateOf(1) == State::FAILED; }));
  absl::SleepFor(absl::Milliseconds(50));
  EXPECT_EQ(AtMirrorNow(1).state(), StepRecord::State::kCommitted);
  EXPECT_TRUE(fs::exists(AtMirror(File(1))));
}

TEST_F(MirrorTest, Start_AKnownMirrorIsEmpty_IsNotMadeAnew) {
  Commit(1);
  options_.ping = absl::Milliseconds(10);
  Begin();
  ASSERT_TRUE(BecomesMirrored(1));
  const auto error = [&] { return std::string(one_->view().DescribeMirror(kJob).error().message()); };
  const std::string mirror = directory_ + "/mirror";
  const auto unmount = [&] {
    fs::rename(mirror, directory_ + "/real");
    fs::create_directory(mirror);
  };
  const auto is_told = [&] { return error().find("is empty, and was this root's mirror before") != std::string::npos; };
  unmount();
  EXPECT_TRUE(Becomes(is_told)) << error();
  Begin();
  EXPECT_TRUE(Becomes(is_told)) << error();
  EXPECT_TRUE(fs::is_empty(mirror));
  EXPECT_TRUE(HasReason(one_->reader().Find(kJob, 1).status(), Reason::kRootMissing));
  End();
  fs::remove(mirror);
  Begin();
  EXPECT_TRUE(Becomes([&] { return !error().empty(); }));
  EXPECT_FALSE(fs::exists(mirror));
  fs::rename(directory_ + "/real", mirror);
  EXPECT_TRUE(BecomesMirrored(1));
  End();
  fs::remove_all(mirror);
  fs::remove(AtRoot(MirrorPlace::MadePath(options_.address)));
  Begin();
  EXPECT_TRUE(BecomesMirrored(1)) << "a person has said that it may be made anew";
}

TEST_F(MirrorTest, Run_TheMirrorDoesNotAnswer_IsToldSoon) {
  Commit(1);
  options_.patience = absl::Milliseconds(50);
  hang_ = true;
  Begin();
  EXPECT_TRUE(Becomes([&] { return HasReason(one_->view().Trouble(kJob), Reason::kStorageStalled); }));
  const std::string error = std::string(one_->view().DescribeMirror(kJob).error().message());
  EXPECT_NE(error.find(options_.address + " has not answered"), std::string::npos) << error;
  EXPECT_TRUE(HasReason(one_->reader().Find(kJob, 1).status(), Reason::kStorageStalled)) << "nobody waits for it";
  Mirror another(options_, checkpoints_, Clock::Real());  // nobody has looked yet
  const auto asked = another.reader().Find(kJob, 1).status();
  EXPECT_TRUE(HasReason(asked, Reason::kStorageStalled)) << asked;
  EXPECT_NE(asked.message().find(options_.address), std::string::npos) << asked;
  EXPECT_NE(another.changes().Change(kJob, {PinStep{1}}).status().message().find(options_.address), std::string::npos);
  hang_ = false;
  EXPECT_TRUE(another.Stop(absl::Seconds(20)));
  EXPECT_TRUE(BecomesMirrored(1));
  EXPECT_TRUE(one_->view().Trouble(kJob).ok());
}

TEST_F(MirrorTest, Run_TheMirrorIsMountedLater_JobsThatSeemedEmptyAreRead) {
  options_.ping = absl::Milliseconds(10);
  Commit(1);
  Begin();
  ASSERT_TRUE(BecomesMirrored(1));
  End();
  const std::string mirror = directory_ + "/mirror";
  fs::rename(mirror, directory_ + "/real");
  fs::remove_all(AtRoot(kJob));
  fs::remove(AtRoot(MirrorPlace::MadePath(options_.address)));
  Begin();  // a root that was lost, and a mirror that is not mounted
  one_->Look(kJob);
  ASSERT_TRUE(Becomes([&] { return !one_->view().DescribeMirror(kJob).has_error(); }));
  fs::rename(mirror, directory_ + "/beneath");
  fs::rename(directory_ + "/real", mirror);
  EXPECT_TRUE(Becomes([&] { return one_->view().OnlyThere(kJob).size() == 1; }));
}

}  // namespace
}  // namespace cairn
