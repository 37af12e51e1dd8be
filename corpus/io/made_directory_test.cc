#include "corpus/io/made_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"

namespace cairn::corpus {
namespace {

namespace fs = std::filesystem;

class MadeDirectoryTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "/made-XXXXXX";
    directory_ = mkdtemp(name.data());
  }
  void TearDown() override { fs::remove_all(directory_); }
  std::string Path(const std::string& name) const { return directory_ + "/" + name; }
  static MadeDirectory Of(const std::string& path) {
    auto made = MadeDirectory::Of(path);
    EXPECT_TRUE(made.ok()) << made.status();
    return made.ok() ? *std::move(made) : MadeDirectory();
  }

  std::string directory_;
};

TEST_F(MadeDirectoryTest, Of_SeveralAreMissing_MakesAll) {
  for (const char* const name : {"a/b/c/file", "d/e//f", "g/./h/../i/file"}) {
    const MadeDirectory made = Of(Path(name));
    EXPECT_TRUE(fs::is_directory(fs::path(Path(name)).parent_path())) << name;
    EXPECT_FALSE(fs::exists(Path(name)));
  }
  EXPECT_TRUE(MadeDirectory::Of("file").ok());
}

TEST_F(MadeDirectoryTest, Destructor_NothingStandsThere_RemovesWhatWasMade) {
  fs::create_directory(Path("old"));
  {
    MadeDirectory moved;
    moved = Of(Path("old/a/b/file"));
    const MadeDirectory made = std::move(moved);
    const MadeDirectory again = Of(Path("old/a/b/file"));
    EXPECT_TRUE(fs::is_directory(Path("old/a/b")));
  }
  EXPECT_TRUE(fs::is_empty(Path("old")));
}

TEST_F(MadeDirectoryTest, Destructor_AFileStandsThere_LeavesTheDirectoriesToIt) {
  {
    const MadeDirectory made = Of(Path("a/b/file"));
    std::ofstream(Path("a/file")) << "text";
  }
  EXPECT_TRUE(fs::exists(Path("a/file")));
  EXPECT_FALSE(fs::exists(Path("a/b")));
}

TEST_F(MadeDirectoryTest, Of_ThatFails_LeavesNothing) {
  fs::create_directory(Path("a"));
  std::ofstream(Path("a/file")) << "text";
  fs::create_symlink("nowhere", Path("a/link"));
  for (const char* const name : {"a/file/b/c", "a/link/b/c", "new://bucket/file"}) {
    EXPECT_TRUE(HasReason(MadeDirectory::Of(Path(name)).status(), Reason::kStorageError)) << name;
  }
  const std::string too_long = absl::StrCat(Path("new/"), std::string(300, 'x'), "/file");
  EXPECT_FALSE(MadeDirectory::Of(too_long).ok());
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_), fs::directory_iterator()), 1);
  EXPECT_FALSE(fs::exists(fs::symlink_status(Path("a/nowhere"))));
}

}  // namespace
}  // namespace cairn::corpus
