#include "store/mirror/step_copy.h"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>

#include "common/status/reason.h"
#include "store/mirror/testing/stored_step.h"
#include "store/storage/testing/fake_root_lock.h"
#include "store/write/attempt_owner.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;

class StepCopyTest : public TwoRoots {
 protected:
  absl::Status Copy(int64_t step) {
    CheckpointStore from(*root_);
    const auto record = from.ReadManifestBytes(kJob, step);
    EXPECT_TRUE(record.ok()) << record.status();
    CheckpointStore there(*mirror_);
    return CopyStep(from, *record, {*mirror_, there, lock_, Clock::Real()}, stop_, bytes_done_);
  }
  bool IsCommitted(int64_t step) {
    return CheckpointStore(*mirror_).ReadStep(kJob, step).state() == StepRecord::State::kCommitted;
  }
  std::string Directory(int64_t step) const { return AtMirror(AttemptDirectory(kJob, step, 1)); }

  FakeRootLock lock_;
  std::atomic<bool> stop_ = false;
  std::atomic<uint64_t> bytes_done_ = 0;
};

TEST_F(StepCopyTest, CopyStep_AWholeStep_HasTheSameBytes) {
  Commit(7, 1, (21 << 20) + 5);
  ASSERT_TRUE(Copy(7).ok());
  EXPECT_TRUE(IsCopied(7));
  EXPECT_TRUE(CheckpointStore(*mirror_).IsValid(kJob, 7));
  EXPECT_EQ(bytes_done_, fs::file_size(AtRoot(File(7, 0))) + fs::file_size(AtRoot(File(7, 1))));
  EXPECT_TRUE(Copy(7).ok()) << "once more: nothing is left to do";
}

TEST_F(StepCopyTest, CopyStep_ADamagedByte_IsNotCommitted) {
  Commit(7, 1, 9 << 20);
  Damage(AtRoot(File(7, 0)), 4096 + (8 << 20) + 3);
  const absl::Status copied = Copy(7);
  EXPECT_TRUE(HasReason(copied, Reason::kChecksumMismatch)) << copied;
  EXPECT_TRUE(IsStepFault(copied));
  EXPECT_NE(copied.message().find("w does not have"), copied.message().npos) << copied;
  EXPECT_FALSE(IsCommitted(7));
  EXPECT_FALSE(fs::exists(AtMirror(File(7, 0)))) << "a file of this name counts as whole";
}

TEST_F(StepCopyTest, CopyStep_AFileIsDamagedShortOrMissing_IsAFaultOfTheStep) {
  for (const int64_t step : {1, 2, 3}) Commit(step);
  Damage(AtRoot(File(1, 1)), 20);
  fs::resize_file(AtRoot(File(2, 1)), 4096);
  fs::remove(AtRoot(File(3, 1)));
  EXPECT_TRUE(HasReason(Copy(1), Reason::kChecksumMismatch));
  EXPECT_TRUE(HasReason(Copy(2), Reason::kFileTruncated));
  EXPECT_TRUE(HasReason(Copy(3), Reason::kFileMissing));
  for (const int64_t step : {1, 2, 3}) EXPECT_FALSE(IsCommitted(step)) << step;
}

TEST_F(StepCopyTest, CopyStep_AnEarlierCopyHasLeftFiles_GoesOnWithWholeOnes) {
  Commit(7);
  ASSERT_TRUE(Copy(7).ok());
  fs::remove(AtMirror(OutcomePath(kJob, 7, 1)));
  const auto written = fs::last_write_time(AtMirror(File(7, 0)));
  Damage(AtMirror(File(7, 1)), 4100);
  std::ofstream(Directory(7) + "/rank00000-bin00.partial") << "half";
  ASSERT_TRUE(Copy(7).ok());
  EXPECT_TRUE(IsCopied(7));
  EXPECT_EQ(fs::last_write_time(AtMirror(File(7, 0))), written) << "it was whole";
}

TEST_F(StepCopyTest, CopyStep_AFileWasBegun_IsCopiedAnew) {
  Commit(7);
  ASSERT_TRUE(Copy(7).ok());
  fs::remove(AtMirror(OutcomePath(kJob, 7, 1)));
  fs::rename(AtMirror(File(7, 1)), Directory(7) + "/rank00001-bin00.partial");
  ASSERT_FALSE(Copy(7).ok()) << "another process may be writing it: the lock is as old as the world";
  fs::remove(Directory(7) + "/rank00001-bin00.partial");
  ASSERT_TRUE(Copy(7).ok());
  EXPECT_TRUE(IsCopied(7));
}

TEST_F(StepCopyTest, CopyStep_FilesOfAnotherRecord_AreNotTaken) {
  Commit(7);
  ASSERT_TRUE(MakeAttemptDirectory(*mirror_, AttemptDirectory(kJob, 7, 1), 12345, "of another root").ok());
  std::ofstream(AtMirror(File(7, 0))) << ReadWhole(AtRoot(File(7, 0)));
  std::ofstream(Directory(7) + "/stray") << "x";
  ASSERT_TRUE(Copy(7).ok());
  EXPECT_TRUE(IsCopied(7));
  EXPECT_FALSE(fs::exists(Directory(7) + "/stray"));
}

TEST_F(StepCopyTest, CopyStep_AnotherRecordStands_Stays) {
  Commit(7);
  ASSERT_TRUE(Copy(7).ok());
  const std::string before = ReadWhole(AtMirror(OutcomePath(kJob, 7, 1)));
  fs::remove_all(AtRoot(StepDirectory(kJob, 7)));
  Commit(7);
  std::ofstream(Directory(7) + "/stray") << "x";
  const absl::Status copied = Copy(7);
  EXPECT_TRUE(HasReason(copied, Reason::kStepCommitted)) << copied;
  EXPECT_TRUE(fs::exists(Directory(7) + "/stray")) << "the directory of a commit is not touched";
  EXPECT_EQ(ReadWhole(AtMirror(OutcomePath(kJob, 7, 1))), before);
}

TEST_F(StepCopyTest, CopyStep_ACopyHasLostFiles_GetsThemAgain) {
  Commit(7);
  ASSERT_TRUE(Copy(7).ok());
  fs::remove(AtMirror(File(7, 0)));
  fs::resize_file(AtMirror(File(7, 1)), 10);
  EXPECT_TRUE(Copy(7).ok());
  EXPECT_TRUE(IsCopied(7));
  fs::remove_all(Directory(7));
  EXPECT_TRUE(Copy(7).ok());
  EXPECT_TRUE(IsCopied(7));
}

TEST_F(StepCopyTest, CopyStep_TheLockIsLost_WritesNothing) {
  Commit(7);
  lock_.held = MakeError(Reason::kRootInUse, "lost");
  EXPECT_TRUE(HasReason(Copy(7), Reason::kRootInUse));
  EXPECT_FALSE(fs::exists(AtMirror(kJob)));
}

TEST_F(StepCopyTest, CopyStep_TheLockIsLostOnTheWay_PutsNoRecord) {
  Commit(7);
  int checks = 0;
  lock_.before_check = [&] {
    if (++checks == 3) lock_.held = MakeError(Reason::kRootInUse, "lost");
  };
  EXPECT_TRUE(HasReason(Copy(7), Reason::kRootInUse));
  EXPECT_TRUE(fs::exists(AtMirror(File(7, 0))));
  EXPECT_FALSE(IsCommitted(7));
}

TEST_F(StepCopyTest, CopyStep_Stopped_CommitsNothing) {
  Commit(7);
  stop_ = true;
  EXPECT_TRUE(HasReason(Copy(7), Reason::kInterrupted));
  EXPECT_FALSE(IsCommitted(7));
}

}  // namespace
}  // namespace cairn
