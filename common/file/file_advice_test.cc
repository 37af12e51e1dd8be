#include "common/file/file_advice.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "common/file/errno_error.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

TEST(FileAdviceTest, NextWithoutFile_WhatTheVolumeIs_DecidesWhatToDo) {
  const std::string full = NextWithoutFile(ENOSPC, "/run/cairn/x", "--run-directory");
  EXPECT_NE(full.find("Make room in the file system of /run/cairn/x"), std::string::npos) << full;
  EXPECT_NE(full.find("--run-directory"), std::string::npos) << full;
  EXPECT_EQ(full, NextWithoutFile(EDQUOT, "/run/cairn/x", "--run-directory"));
  EXPECT_NE(NextWithoutFile(EROFS, "/x", "--a").find("Mount a volume that can be written"), std::string::npos);
  EXPECT_NE(NextWithoutFile(ENOENT, "/x", "--a").find("Mount or make the directory above /x"), std::string::npos);
  EXPECT_NE(NextWithoutFile(EACCES, "/x", "--a").find(absl::StrCat("Let user ", geteuid())), std::string::npos);
  EXPECT_EQ(NextWithoutFile(EADDRINUSE, "/x", "--a"), "");
}

TEST(FileAdviceTest, WithNextWithoutFile_ErrorOfAFile_SaysWhatToDo) {
  const absl::Status full = ErrnoError(ENOSPC, "write", "/x/y");
  EXPECT_EQ(NextActionOf(WithNextWithoutFile(full, "/x/y", "--a")), NextWithoutFile(ENOSPC, "/x/y", "--a"));
  const absl::Status other = ErrnoError(EIO, "write", "/x/y");
  EXPECT_EQ(WithNextWithoutFile(other, "/x/y", "--a"), other);
  EXPECT_EQ(WithNextWithoutFile(absl::OkStatus(), "/x/y", "--a"), absl::OkStatus());
}

}  // namespace
}  // namespace cairn
