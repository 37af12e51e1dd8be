#include "corpus/io/errno_status.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/match.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn::corpus {
namespace {

class ErrnoStatusTest : public testing::Test {
 protected:
  ErrnoStatusTest() {
    directory_ = testing::TempDir() + "/errno-status-XXXXXX";
    EXPECT_NE(mkdtemp(directory_.data()), nullptr);
  }
  ~ErrnoStatusTest() override { std::filesystem::remove_all(directory_); }

  std::string directory_;
};

TEST_F(ErrnoStatusTest, OutputError_AFileStandsInThePath_IsNamed) {
  std::ofstream(directory_ + "/file") << "x";
  const absl::Status error = OutputError("create", directory_ + "/file/below/out", ENOTDIR);
  EXPECT_TRUE(HasReason(error, Reason::kStorageError)) << error;
  EXPECT_TRUE(absl::StrContains(error.message(), "/file is no directory")) << error;
  EXPECT_TRUE(absl::StrContains(NextActionOf(error), "/file away")) << NextActionOf(error);
}

TEST_F(ErrnoStatusTest, OutputError_ALinkLeadsNowhere_IsNamedWithItsTarget) {
  std::filesystem::create_symlink("nowhere", directory_ + "/link");
  const absl::Status error = OutputError("create", directory_ + "/link/out", EEXIST);
  EXPECT_TRUE(absl::StrContains(error.message(), "/link is a link to nowhere")) << error;
}

TEST_F(ErrnoStatusTest, OutputError_NoDirectory_SaysHowToMakeIt) {
  const absl::Status error = OutputError("create", directory_ + "/absent/out", ENOENT);
  EXPECT_TRUE(absl::StrContains(NextActionOf(error), "mkdir -p " + directory_ + "/absent")) << NextActionOf(error);
}

// As in /proc, where nothing can be made.
TEST_F(ErrnoStatusTest, OutputError_TheDirectoryIsThere_IsNotToBeMade) {
  const absl::Status error = OutputError("create", directory_ + "/out", ENOENT);
  EXPECT_TRUE(HasReason(error, Reason::kStorageError)) << error;
  EXPECT_FALSE(absl::StrContains(NextActionOf(error), "mkdir")) << NextActionOf(error);
}

TEST_F(ErrnoStatusTest, OutputError_AnythingElse_KeepsTheWordsOfTheSystem) {
  const absl::Status error = OutputError("create", directory_ + "/out", EEXIST);
  EXPECT_TRUE(absl::StrContains(error.message(), "File exists")) << error;
}

}  // namespace
}  // namespace cairn::corpus
