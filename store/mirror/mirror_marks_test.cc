#include "store/mirror/mirror_marks.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <variant>

#include "store/mirror/testing/running_mirror.h"
#include "store/write/deletion_store.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;
using MirrorMarksTest = RunningMirror;

TEST_F(MirrorMarksTest, Look_PinsAndTags_Follow) {
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

TEST_F(MirrorMarksTest, Look_AMarkCannotBeRead_KeepsNothingBack) {
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

TEST_F(MirrorMarksTest, Unmark_TheMarkWasTakenOverFromTheMirror_DoesNotComeBack) {
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

TEST_F(MirrorMarksTest, Unmark_ThenTheMarkIsSetAnewAtTheMirror_ItStays) {
  for (const int64_t step : {1, 2}) Commit(step);
  Begin();
  ASSERT_TRUE(BecomesMirrored(1) && BecomesMirrored(2));
  ASSERT_TRUE(Delete(1, /*by_rules=*/true).ok());
  for (const bool pin : {false, true}) {
    const ChangeSteps mark = pin ? ChangeSteps{PinStep{1}} : ChangeSteps{TagStep{"paper", 1}};
    ASSERT_TRUE(one_->changes().Change(kJob, mark)->has_value());
    one_->marks().Unmark(kJob, 1, pin ? "" : "paper");
    ASSERT_TRUE(one_->changes().Change(kJob, mark)->has_value());
    Commit(pin ? 4 : 3);
    one_->Look(kJob);
    EXPECT_TRUE(BecomesMirrored(pin ? 4 : 3));
    EXPECT_TRUE(fs::exists(AtMirror(pin ? PinPath(kJob, 1) : TagPath(kJob, 1, "paper")))) << "a person was told so";
  }
}

}  // namespace
}  // namespace cairn
