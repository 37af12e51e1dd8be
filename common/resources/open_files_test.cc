#include "common/resources/open_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <vector>

namespace cairn {
namespace {

TEST(OpenFilesTest, SharesOfOpenFiles_AnyLimit_EverybodyHasSomeAndPeersMost) {
  for (const uint64_t limit : {16ULL, 300ULL, 1024ULL, 20'000ULL, 1'048'576ULL}) {
    const OpenFileShares shares = SharesOfOpenFiles(limit);
    EXPECT_GT(shares.files, 0);
    EXPECT_GT(shares.strangers, 0);
    EXPECT_GE(limit - shares.files - shares.strangers, limit / 2);
  }
}

TEST(OpenFilesTest, LimitForPeers_AnyNumber_LeavesRoomForThemAndLittleMore) {
  for (uint64_t peers = 0; peers < 40'000; peers += 7) {
    const uint64_t limit = LimitForPeers(peers);
    ASSERT_GE(PeersWithin(limit), peers);
    ASSERT_LT(limit, peers + 2500);
    ASSERT_LE(PeersWithin(peers), peers);
  }
  // A job of 16,384 ranks, as docs/operations.md says.
  EXPECT_LE(LimitForPeers(16'384), 20'000);
}

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
