#include "store/mirror/same_files.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "common/status/reason.h"
#include "store/mirror/testing/stored_step.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;

class SameFilesTest : public TwoRoots {
 protected:
  SameFilesTest() {
    Commit(1);
    copy_ = *CheckpointStore(*root_).ReadManifest(kJob, 1);
  }
  absl::StatusOr<SameFiles> Compare() {
    CheckpointStore root(*root_);
    return CompareFiles(root, root.ReadStep(kJob, 1), copy_);
  }
  void DamageRecord() { fs::resize_file(AtRoot(OutcomePath(kJob, 1, 1)), 10); }

  Manifest copy_;
};

TEST_F(SameFilesTest, CompareFiles_TheRecordCanBeRead_ComparesWhatItNames) {
  EXPECT_EQ(*Compare(), SameFiles::kYes);
  copy_.request_id = "of a repair";
  EXPECT_EQ(*Compare(), SameFiles::kYes);
  copy_.files[1].header_crc32c ^= 1;
  EXPECT_EQ(*Compare(), SameFiles::kNo);
}

TEST_F(SameFilesTest, CompareFiles_TheRecordIsDamaged_ComparesTheHeadersThatAreLeft) {
  DamageRecord();
  EXPECT_EQ(*Compare(), SameFiles::kYes);
  Damage(AtRoot(File(1, 0)), 20);
  EXPECT_EQ(*Compare(), SameFiles::kNo) << "several commits may have the other one";
  fs::remove(AtRoot(File(1, 0)));
  EXPECT_EQ(*Compare(), SameFiles::kYes) << "by what is left";
  fs::resize_file(AtRoot(File(1, 1)), 100);
  EXPECT_EQ(*Compare(), SameFiles::kUnknown);
  fs::remove_all(AtRoot(AttemptDirectory(kJob, 1, 1)));
  EXPECT_EQ(*Compare(), SameFiles::kUnknown);
}

TEST_F(SameFilesTest, CompareFiles_AFileCannotBeRead_NobodyKnows) {
  DamageRecord();
  fs::remove(AtRoot(File(1, 0)));
  fs::create_directory(AtRoot(File(1, 0)));
  EXPECT_FALSE(Compare().ok());
}

}  // namespace
}  // namespace cairn
