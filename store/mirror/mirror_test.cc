#include "store/mirror/mirror.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <functional>

#include "common/status/reason.h"
#include "common/status/status.h"
#include "store/mirror/testing/counted_storage.h"
#include "store/mirror/testing/stored_step.h"
#include "store/storage/testing/fake_root_lock.h"
#include "store/write/deletion_store.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;
using State = v1::MirroredCheckpoint;

class MirrorTest : public TwoRoots {
 protected:
  MirrorTest() : checkpoints_(*root_) {
    options_.address = directory_ + "/mirror";
    options_.root = directory_ + "/root";
    options_.open = [this](bool create) -> absl::StatusOr<std::unique_ptr<Storage>> {
      Await(hang_);
      if (down_) return MakeError(Reason::kStorageError, "the mirror is down");
      PosixCalls calls;
      calls.direct = false;
      calls.pwrite = [this](int file, const void* bytes, size_t size, off_t offset) {
        Await(hold_writes_);
        return pwrite(file, bytes, size, offset);
      };
      CAIRN_ASSIGN_OR_RETURN(auto storage, PosixStorage::Open(options_.address, create, std::move(calls)));
      return storage;
    };
    options_.settle = absl::ZeroDuration();
    options_.first_retry = absl::Milliseconds(5);
    options_.longest_retry = absl::Milliseconds(20);
  }
  ~MirrorTest() override {
    hang_ = hold_writes_ = false;
    End();
  }

  static void Await(const std::atomic<bool>& held) {
    while (held) absl::SleepFor(absl::Milliseconds(1));
  }

  void Begin(std::string_view steps = "all", int64_t keep_last = 0) {
    End();
    options_.rule = *ParseMirrorRule(steps, keep_last);
    one_ = std::make_unique<Mirror>(options_, checkpoints_, Clock::Real());
    ASSERT_TRUE(one_->Start().ok());
  }
  void End() {
    if (one_ != nullptr) {
      EXPECT_TRUE(one_->Stop(absl::Seconds(20)));
    }
    one_ = nullptr;
  }
  bool Becomes(const std::function<bool()>& true_now) {
    const absl::Time deadline = absl::Now() + absl::Seconds(20);
    while (!true_now()) {
      if (absl::Now() > deadline) return false;
      absl::SleepFor(absl::Milliseconds(5));
    }
    return true;
  }
  State::State StateOf(int64_t step) { return one_->view().Describe(kJob, step).state(); }
  bool BecomesMirrored(int64_t step) {
    return Becomes([&] { return StateOf(step) == State::MIRRORED; });
  }
  absl::Status Delete(int64_t step, bool by_rules) {
    DeletionStore deletions(*root_, checkpoints_, Clock::Real(), lock_);
    const DeleteStep action = {step, "a test", by_rules};
    CAIRN_RETURN_IF_ERROR(deletions.Delete(kJob, action, std::nullopt).status());
    CAIRN_RETURN_IF_ERROR(deletions.Remove(kJob, step, 1, std::nullopt));
    one_->Look(kJob);
    return absl::OkStatus();
  }
  StepRecord AtMirrorNow(int64_t step) { return CheckpointStore(*mirror_).ReadStep(kJob, step); }

  std::atomic<bool> down_ = false;
  std::atomic<bool> hang_ = false;         // the mirror cannot be opened, nor does it fail
  std::atomic<bool> hold_writes_ = false;  // files of copies
  FakeRootLock lock_;
  CheckpointStore checkpoints_;
  MirrorOptions options_;
  std::unique_ptr<Mirror> one_;
};

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

TEST_F(MirrorTest, Look_PinsAndTags_Follow) {
  Commit(1);
  Begin();
  ASSERT_TRUE(BecomesMirrored(1));
  ASSERT_TRUE(root_->PutIfAbsent(PinPath(kJob, 1), "note\n").ok());
  ASSERT_TRUE(root_->PutIfAbsent(TagPath(kJob, 1, "paper"), "time\n").ok());
  one_->Look(kJob);
  EXPECT_TRUE(Becomes([&] { return ReadWhole(AtMirror(TagPath(kJob, 1, "paper"))) == "time\n"; }));
  EXPECT_EQ(ReadWhole(AtMirror(PinPath(kJob, 1))), "note\n");
  ASSERT_TRUE(root_->RemoveAll(TagPath(kJob, 1, "paper")).ok());
  one_->Look(kJob);
  EXPECT_TRUE(BecomesMirrored(1));
  EXPECT_TRUE(fs::exists(AtMirror(TagPath(kJob, 1, "paper")))) << "the root may come from a backup";
  one_->marks().Unmark(kJob, 1, "");
  one_->marks().Unmark(kJob, 1, "paper");
  EXPECT_TRUE(Becomes([&] { return !fs::exists(AtMirror(TagPath(kJob, 1, "paper"))); }));
  EXPECT_EQ(ReadWhole(AtMirror(PinPath(kJob, 1))), "note\n") << "the root has it";
}

TEST_F(MirrorTest, Delete_ByAPerson_FollowsAndByRulesDoesNot) {
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

TEST_F(MirrorTest, OnlyThere_ACopyIsDamaged_IsSaid) {
  for (const int64_t step : {1, 2, 3}) Commit(step);
  Begin();
  for (const int64_t step : {1, 2, 3}) ASSERT_TRUE(BecomesMirrored(step));
  for (const int64_t step : {1, 2}) ASSERT_TRUE(Delete(step, /*by_rules=*/true).ok());
  const auto state = [&](size_t i) {
    const auto steps = one_->view().OnlyThere(kJob);
    return i < steps.size() ? steps[i].state() : v1::Phase::PHASE_UNSPECIFIED;
  };
  EXPECT_TRUE(Becomes([&] { return state(1) == v1::Phase::COMMITTED; }));
  const std::string bytes = ReadWhole(AtMirror(File(1)));
  fs::remove(AtMirror(File(1)));
  EXPECT_TRUE(HasReason(one_->reader().Find(kJob, 1).status(), Reason::kFileMissing));
  EXPECT_EQ(state(0), v1::Phase::DAMAGED) << "a load has found it";
  EXPECT_EQ(state(1), v1::Phase::COMMITTED);
  Begin();
  EXPECT_TRUE(Becomes([&] { return state(0) == v1::Phase::DAMAGED; })) << "nobody has loaded it";
  EXPECT_NE(one_->view().OnlyThere(kJob)[0].error().message().find(File(1)), std::string::npos);
  std::ofstream(AtMirror(File(1)), std::ios::binary) << bytes;
  EXPECT_TRUE(one_->reader().Find(kJob, 1).ok());
  EXPECT_EQ(state(0), v1::Phase::COMMITTED) << "somebody has brought it back";
  // A record that cannot be read.
  fs::resize_file(AtMirror(OutcomePath(kJob, 2, 1)), 10);
  one_->Look(kJob);
  EXPECT_TRUE(Becomes([&] { return state(1) == v1::Phase::DAMAGED; }));
  EXPECT_EQ(one_->view().OnlyThere(kJob)[1].mirror().state(), State::ONLY_THERE);
  EXPECT_TRUE(one_->changes().Change(kJob, {DeleteStep{2, "a person"}})->has_value());
  EXPECT_TRUE(Becomes([&] { return one_->view().OnlyThere(kJob).size() == 1; }));
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

TEST_F(MirrorTest, MayRulesDelete_TheCopyHasLostAFile_NotBeforeItIsMadeAgain) {
  Commit(1);
  Commit(2);
  Begin();
  ASSERT_TRUE(BecomesMirrored(1) && BecomesMirrored(2));
  fs::remove(AtMirror(File(1)));
  EXPECT_FALSE(one_->reader().MayRulesDelete(kJob, 1));
  EXPECT_TRUE(one_->reader().MayRulesDelete(kJob, 2));
  EXPECT_TRUE(Becomes([&] { return one_->reader().MayRulesDelete(kJob, 1); }));
  EXPECT_TRUE(IsCopied(1));
  End();
  fs::remove_all(AtMirror(kJob));
  Begin();
  EXPECT_FALSE(one_->reader().MayRulesDelete(kJob, 1)) << "nothing was seen, or nothing is there";
  EXPECT_TRUE(Becomes([&] { return one_->reader().MayRulesDelete(kJob, 1); }));
  EXPECT_TRUE(IsCopied(1));
}

TEST_F(MirrorTest, Find_DeletedWhileTheMirrorWasDown_IsNotFound) {
  Commit(1);
  Commit(2);
  Begin();
  ASSERT_TRUE(BecomesMirrored(1) && BecomesMirrored(2));
  End();
  DeletionStore deletions(*root_, checkpoints_, Clock::Real(), lock_);
  ASSERT_TRUE(deletions.Delete(kJob, DeleteStep{2, "a person"}, std::nullopt).ok());
  Mirror later(options_, checkpoints_, Clock::Real());  // its thread has not begun
  const auto latest = later.reader().FindLatest(kJob, true, {});
  ASSERT_TRUE(latest.ok()) << latest.status();
  EXPECT_EQ(latest->manifest->step, 1);
  EXPECT_EQ(latest->directory, "") << "the root has it";
}

TEST_F(MirrorTest, Find_DeletedWhileALoadReads_FilesStayUntilItEnds) {
  Commit(1);
  Commit(2);
  Begin();
  ASSERT_TRUE(BecomesMirrored(1) && BecomesMirrored(2));
  auto load = one_->reader().Find(kJob, 1);
  ASSERT_TRUE(load.ok());
  ASSERT_TRUE(Delete(1, /*by_rules=*/false).ok());
  EXPECT_TRUE(Becomes([&] { return AtMirrorNow(1).state() == StepRecord::State::kNothing; }));
  one_->Look(kJob);
  absl::SleepFor(absl::Milliseconds(100));
  EXPECT_TRUE(fs::exists(AtMirror(File(1))));
  load->hold.reset();
  one_->Look(kJob);
  EXPECT_TRUE(Becomes([&] { return !fs::exists(AtMirror(File(1))); }));
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

TEST_F(MirrorTest, Find_TheRootWasLost_FindsTheLatest) {
  for (const int64_t step : {1, 2}) Commit(step);
  Begin();
  ASSERT_TRUE(BecomesMirrored(1) && BecomesMirrored(2));
  End();
  fs::remove_all(AtRoot(kJob));
  Begin();
  const auto latest = one_->reader().FindLatest(kJob, true, {});
  ASSERT_TRUE(latest.ok()) << latest.status();
  EXPECT_EQ(latest->manifest->step, 2);
  EXPECT_EQ(one_->view().Continue(kJob, {.sequence = 1}).sequence, 3u);
  EXPECT_EQ(one_->view().Continue(kJob, {.line = 7, .continues_step = 2, .parent_line = 5}).parent_line, 0u)
      << "that of step 2";
  EXPECT_TRUE(IsCopied(1) == false && fs::exists(AtMirror(File(1)))) << "a root that is empty deletes nothing";
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

TEST_F(MirrorTest, NoteDeleted_ByRules_IsKnownBeforeTheNextLook) {
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
  view.NoteDeleted(kJob, 2, 1, /*by_rules=*/true, began + absl::Seconds(2));
  EXPECT_EQ(view.OnlyThere(kJob).size(), 1u);
  view.Note(kJob, {began + absl::Seconds(1), std::nullopt, before}, began + absl::Seconds(3));
  EXPECT_EQ(view.OnlyThere(kJob).size(), 1u) << "it began before the deletion";
  view.Note(kJob, {began + absl::Seconds(3), std::nullopt, before}, began + absl::Seconds(4));
  EXPECT_TRUE(view.OnlyThere(kJob).empty()) << "it began after it";
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

TEST_F(MirrorTest, Look_AMarkCannotBeRead_KeepsNothingBack) {
  for (const int64_t step : {1, 2, 3}) Commit(step);
  Begin();
  for (const int64_t step : {1, 2, 3}) ASSERT_TRUE(BecomesMirrored(step));
  std::ofstream(AtRoot(PinPath(kJob, 1))) << std::string(5000, 'x');
  ASSERT_TRUE(Delete(2, /*by_rules=*/false).ok());
  Commit(4);
  one_->Look(kJob);
  EXPECT_TRUE(BecomesMirrored(4));
  EXPECT_TRUE(Becomes([&] { return AtMirrorNow(2).state() == StepRecord::State::kNothing; })) << "which makes room";
  const auto says = [&] { return std::string(one_->view().DescribeMirror(kJob).error().message()); };
  EXPECT_TRUE(Becomes([&] { return says().find("the pin of demo@1 is not copied") != std::string::npos; }));
  EXPECT_NE(says().find(AtRoot("")), std::string::npos) << says();
  std::ofstream(AtRoot(PinPath(kJob, 1))) << "note\n";
  EXPECT_TRUE(Becomes([&] { return ReadWhole(AtMirror(PinPath(kJob, 1))) == "note\n"; }));
  EXPECT_TRUE(Becomes([&] { return says().empty(); }));
  EXPECT_TRUE(fs::exists(AtMirror(".cairn/tombstone-room"))) << "so that deletions can be put on a full disk";
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

TEST_F(MirrorTest, Unmark_TheMarkWasTakenOverFromTheMirror_DoesNotComeBack) {
  options_.mark_root = [&](const std::string& job, const ChangeSteps& mark) {
    DeletionStore deletions(*root_, checkpoints_, Clock::Real(), lock_);
    return deletions.Pin(job, std::get<PinStep>(mark.change)).status();
  };
  for (const int64_t step : {1, 2}) Commit(step);
  Begin();
  ASSERT_TRUE(BecomesMirrored(1) && BecomesMirrored(2));
  ASSERT_TRUE(Delete(1, /*by_rules=*/true).ok());
  ASSERT_TRUE(one_->changes().Change(kJob, {PinStep{1}})->has_value());
  hold_writes_ = true;
  Commit(1, 2);
  one_->Look(kJob);
  const auto pinned = [&] { return fs::exists(AtRoot(PinPath(kJob, 1))); };
  ASSERT_TRUE(Becomes(pinned));
  {
    const Turns::Turn order(one_->orders(), kJob);
    ASSERT_TRUE(root_->RemoveAll(PinPath(kJob, 1)).ok());
    one_->marks().Unmark(kJob, 1, "");
  }
  EXPECT_TRUE(Becomes([&] { return !AtMirrorNow(1).pinned; }));
  one_->Look(kJob);
  absl::SleepFor(absl::Milliseconds(100));
  EXPECT_FALSE(pinned());
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

}  // namespace
}  // namespace cairn
