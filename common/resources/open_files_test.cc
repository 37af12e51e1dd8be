#include "common/resources/open_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <vector>

namespace cairn {
namespace {

TEST(OpenFilesTest, Raise_SoftLimitBelowHard_ReachesIt) {
  constexpr size_t kSoft = 64, kHard = 200;
  const rlimit few = {kSoft, kHard};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  EXPECT_EQ(RaiseOpenFileLimit(), kHard);
  std::vector<int> files;
  for (int file = 0; files.size() < kHard && file >= 0;) {
    file = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (file >= 0) files.push_back(file);
  }
  for (const int file : files) close(file);
  EXPECT_GT(files.size(), kSoft);
}

}  // namespace
}  // namespace cairn
