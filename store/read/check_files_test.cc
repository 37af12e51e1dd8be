#include "store/read/check_files.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "store/posix/posix_storage.h"

namespace cairn {
namespace {

class CheckFilesTest : public testing::Test {
 protected:
  CheckFilesTest() {
    root_ = testing::TempDir() + "/check_XXXXXX";
    EXPECT_NE(mkdtemp(root_.data()), nullptr);
    storage_ = *PosixStorage::Open(root_, false);
    EXPECT_TRUE(storage_->MakeDirectories("a/b").ok());
    for (int i = 0; i < 300; ++i) {
      files_.push_back({absl::StrCat("file", i), static_cast<uint64_t>(i)});
      std::ofstream(Path(files_.back().name)) << std::string(files_.back().bytes, 'x');
    }
  }
  ~CheckFilesTest() override { std::filesystem::remove_all(root_); }

  std::string Path(const std::string& name) const { return root_ + "/a/b/" + name; }
  absl::Status Check() { return CheckFiles(*storage_, "a/b", files_); }

  std::string root_;
  std::unique_ptr<PosixStorage> storage_;
  std::vector<FileSize> files_;
};

TEST_F(CheckFilesTest, CheckFiles_AllAreThere_IsOk) {
  EXPECT_TRUE(Check().ok()) << Check();
  files_.clear();
  EXPECT_TRUE(Check().ok()) << Check();
}

TEST_F(CheckFilesTest, CheckFiles_MissingOrOtherLength_NamesTheFirstAndCounts) {
  std::filesystem::resize_file(Path("file7"), 6);
  EXPECT_TRUE(HasReason(Check(), Reason::kFileTruncated));
  EXPECT_EQ(Check().message(), Path("file7") + " has 6 bytes and should have 7");
  std::filesystem::remove(Path("file299"));
  std::filesystem::resize_file(Path("file250"), 251);
  EXPECT_TRUE(HasReason(Check(), Reason::kFileTruncated));
  EXPECT_EQ(Check().message(), Path("file7") +
                                   " has 6 bytes and should have 7; 2 more of its 300 files are missing or have "
                                   "another length");
  std::filesystem::remove(Path("file7"));
  EXPECT_TRUE(HasReason(Check(), Reason::kFileMissing));
  EXPECT_EQ(MetadataOf(Check())["file"], Path("file7"));
}

TEST_F(CheckFilesTest, CheckFiles_DirectoryIsMissing_IsFileMissing) {
  EXPECT_TRUE(HasReason(CheckFiles(*storage_, "a/c", files_), Reason::kFileMissing));
}

TEST_F(CheckFilesTest, CheckFiles_UnreadableBesideDamaged_TellsTheUnreadable) {
  std::filesystem::remove(Path("file1"));
  std::filesystem::remove(Path("file200"));
  std::filesystem::create_symlink("file100", Path("file200"));
  EXPECT_TRUE(HasReason(Check(), Reason::kPathEscape)) << Check();
}

}  // namespace
}  // namespace cairn
