#include "common/file/open_again.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "absl/status/statusor.h"
#include "common/file/unique_fd.h"

namespace cairn {
namespace {

TEST(OpenAgainTest, OpenAgainToRead_MemoryWithoutAName_CanBeReadAndNotWritten) {
  const UniqueFd memory(memfd_create("again", MFD_CLOEXEC));
  ASSERT_EQ(write(memory.get(), "bytes", 5), 5);
  const absl::StatusOr<UniqueFd> again = OpenAgainToRead(memory.get());
  ASSERT_TRUE(again.ok()) << again.status();
  char read_back[5];
  EXPECT_EQ(read(again->get(), read_back, 5), 5) << "it has a position of its own";
  EXPECT_EQ(write(again->get(), "x", 1), -1);
  EXPECT_EQ(errno, EBADF);
  EXPECT_EQ(fcntl(again->get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  EXPECT_EQ(fcntl(again->get(), F_SETFL, O_NONBLOCK), 0);
  EXPECT_EQ(fcntl(memory.get(), F_GETFL) & O_NONBLOCK, 0) << "it has flags of its own";
}

TEST(OpenAgainTest, OpenAgainToRead_NoDescriptor_IsAnError) { EXPECT_FALSE(OpenAgainToRead(-1).ok()); }

}  // namespace
}  // namespace cairn
