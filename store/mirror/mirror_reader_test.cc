#include "store/mirror/mirror_reader.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <variant>

#include "common/format/checkpoint_path.h"
#include "common/format/outcome.h"
#include "common/status/reason.h"
#include "store/mirror/testing/running_mirror.h"
#include "store/write/deletion_store.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;
using State = v1::MirroredCheckpoint;
using MirrorReaderTest = RunningMirror;

TEST_F(MirrorReaderTest, OnlyThere_ACopyIsDamaged_IsSaid) {
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

TEST_F(MirrorReaderTest, MayRulesDelete_TheCopyHasLostAFile_NotBeforeItIsMadeAgain) {
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

TEST_F(MirrorReaderTest, Find_DeletedWhileTheMirrorWasDown_IsNotFound) {
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

TEST_F(MirrorReaderTest, Find_DeletedWhileALoadReads_FilesStayUntilItEnds) {
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

TEST_F(MirrorReaderTest, Find_TheRootWasLost_FindsTheLatest) {
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

// Damages the record of a step at the root, so that it says no more than its number.
TEST_F(MirrorReaderTest, Find_TheRootsRecordIsDamaged_TakesTheCopyOnlyIfItHasTheSameFiles) {
  Commit(1);
  Commit(2);
  Begin();
  ASSERT_TRUE(BecomesMirrored(1) && BecomesMirrored(2));
  fs::resize_file(AtRoot(OutcomePath(kJob, 2, 1)), 10);
  EXPECT_EQ(one_->reader().Find(kJob, 2)->manifest->step, 2);
  EXPECT_EQ(one_->reader().FindLatest(kJob, false, {})->manifest->step, 2);
  // The root was lost, and the step was saved anew while nobody knew the mirror.
  End();
  fs::remove_all(AtRoot(AttemptDirectory(kJob, 2, 1)));
  fs::remove(AtRoot(OutcomePath(kJob, 2, 1)));
  Commit(2, 1, /*bytes=*/2000);
  fs::resize_file(AtRoot(OutcomePath(kJob, 2, 1)), 10);
  Begin();
  EXPECT_TRUE(HasReason(one_->reader().Find(kJob, 2).status(), Reason::kNotCommitted));
  EXPECT_TRUE(HasReason(one_->reader().FindLatest(kJob, false, {}).status(), Reason::kManifestCorrupt));
  const auto older = one_->reader().FindLatest(kJob, true, {});
  ASSERT_TRUE(older.ok()) << older.status();
  EXPECT_EQ(older->manifest->step, 1);
  EXPECT_EQ(older->passed_over.size(), 1u);
}

TEST_F(MirrorReaderTest, MayRulesDelete_ARepairHasMadeTheRecord_TheStepStays) {
  for (const int64_t step : {1, 2, 3}) Commit(step);
  Begin();
  for (const int64_t step : {1, 2, 3}) ASSERT_TRUE(BecomesMirrored(step));
  Manifest manifest = std::get<Manifest>(*DecodeOutcome(ReadWhole(AtRoot(OutcomePath(kJob, 1, 1)))));
  manifest.request_id = "";
  manifest.commit_time += absl::Seconds(5);
  ASSERT_TRUE(root_->PutIfAbsent(RepairedPath(kJob, 1, 1), EncodeOutcome(manifest)).ok());
  fs::resize_file(AtRoot(OutcomePath(kJob, 1, 1)), 10);
  for (const std::string_view rule : {"all", "every:3"}) {
    Begin(rule);
    ASSERT_TRUE(Becomes([&] { return one_->view().IsKnown(kJob); })) << rule;
    EXPECT_TRUE(Becomes([&] { return one_->reader().MayRulesDelete(kJob, 2); })) << rule;
    EXPECT_FALSE(one_->reader().MayRulesDelete(kJob, 1)) << "nobody could tell the copy from another commit then";
  }
  EXPECT_EQ(one_->reader().Find(kJob, 1)->manifest->step, 1) << "the files are the same";
}

}  // namespace
}  // namespace cairn
