#include "corpus/bpe/work_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "common/status/reason.h"

namespace cairn::corpus {
namespace {

namespace fs = std::filesystem;

class WorkDirectoryTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "/work-XXXXXX";
    directory_ = mkdtemp(name.data());
  }
  void TearDown() override { fs::remove_all(directory_); }
  std::string Path(const std::string& name) const { return directory_ + "/" + name; }

  std::string directory_;
};

TEST_F(WorkDirectoryTest, Destructor_RemovesAllThatItMade) {
  {
    const auto work = WorkDirectory::Open(Path("new/counts"), /*resume=*/false);
    ASSERT_TRUE(work.ok()) << work.status();
    std::ofstream(Path("new/counts/run")) << "text";
  }
  EXPECT_TRUE(fs::is_empty(directory_));
}

TEST_F(WorkDirectoryTest, Resume_LeavesOnlyWhatALaterRunNeeds) {
  ASSERT_TRUE(WorkDirectory::Open(Path("new/counts"), /*resume=*/true).ok());
  EXPECT_TRUE(fs::is_empty(directory_)) << "nothing was counted";
  {
    const auto work = WorkDirectory::Open(Path("new/counts"), /*resume=*/true);
    ASSERT_TRUE(work.ok()) << work.status();
    std::ofstream(Path("new/counts/run")) << "text";
  }
  EXPECT_TRUE(fs::exists(Path("new/counts/run")));
  {
    const auto work = WorkDirectory::Open(Path("new/counts"), /*resume=*/true);
    ASSERT_TRUE(work.ok()) << work.status();
    (*work)->Finished();
  }
  EXPECT_FALSE(fs::exists(Path("new/counts")));
}

TEST_F(WorkDirectoryTest, Open_AnotherRunHasIt_IsRefused) {
  const auto work = WorkDirectory::Open(Path("counts"), /*resume=*/true);
  ASSERT_TRUE(work.ok()) << work.status();
  EXPECT_TRUE(HasReason(WorkDirectory::Open(Path("counts"), /*resume=*/true).status(), Reason::kBadRequest));
  EXPECT_TRUE(fs::is_directory(Path("counts")));
}

TEST_F(WorkDirectoryTest, Open_SomethingElseStandsThere_IsAnError) {
  std::ofstream(Path("file")) << "text";
  fs::create_symlink("nowhere", Path("link"));
  for (const char* const name : {"file", "link", "file/counts"}) {
    EXPECT_TRUE(HasReason(WorkDirectory::Open(Path(name), /*resume=*/true).status(), Reason::kStorageError)) << name;
  }
}

}  // namespace
}  // namespace cairn::corpus
