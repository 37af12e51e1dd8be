#include "common/file/errno_error.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "absl/strings/str_cat.h"

namespace cairn {
namespace {

TEST(ErrnoErrorTest, ErrnoError_EachNumber_HasItsReason) {
  EXPECT_TRUE(HasReason(ErrnoError(ENOSPC, "write", "/f"), Reason::kNoSpace));
  EXPECT_TRUE(HasReason(ErrnoError(EROFS, "write", "/f"), Reason::kStorageReadOnly));
  EXPECT_TRUE(HasReason(ErrnoError(ENOENT, "open", "/f"), Reason::kFileMissing));
  EXPECT_TRUE(HasReason(ErrnoError(EIO, "fsync", "/f"), Reason::kFsyncFailed));
  const absl::Status other = ErrnoError(EIO, "read", "/f");
  EXPECT_TRUE(HasReason(other, Reason::kStorageError));
  EXPECT_EQ(other.message(), "read /f: Input/output error");
}

// The same words, whichever call is the first that gets no descriptor, and whatever its caller knows of the call.
TEST(ErrnoErrorTest, ErrnoError_NoDescriptor_SaysWhoseLimitAndHowToRaiseIt) {
  rlimit limit = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  for (const absl::Status& status :
       {ErrnoError(EMFILE, "open", "/f"), ErrnoError(Reason::kInputUnreadable, EMFILE, "open", "/f")}) {
    EXPECT_TRUE(HasReason(status, Reason::kMemoryLimit)) << status;
    const std::string expected =
        absl::StrCat("(process ", getpid(), ") has no file descriptor left, of ", limit.rlim_cur);
    EXPECT_NE(status.message().find(expected), std::string::npos) << status;
    EXPECT_NE(NextActionOf(status).find(absl::StrCat("prlimit --pid ", getpid(), " --nofile=")), std::string::npos);
    EXPECT_EQ(MetadataOf(status)["errno"], absl::StrCat(EMFILE));
  }
  EXPECT_NE(ErrnoError(ENFILE, "open", "/f").message().find("the whole system has no file descriptor left"),
            std::string::npos);
}

}  // namespace
}  // namespace cairn
