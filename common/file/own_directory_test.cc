#include "common/file/own_directory.h"

#include <gtest/gtest.h>

namespace cairn {
namespace {

std::string Why(mode_t mode, uid_t owner) {
  struct stat info = {};
  info.st_mode = mode;
  info.st_uid = owner;
  return WhyNotOwn(info, 7);
}

TEST(OwnDirectoryTest, WhyNotOwn_OnlyTheUserMayWrite_IsFine) {
  EXPECT_EQ(Why(S_IFDIR | 0700, 7), "");
  EXPECT_EQ(Why(S_IFDIR | 0755, 7), "");
}

TEST(OwnDirectoryTest, WhyNotOwn_AnotherMayWrite_SaysWhy) {
  EXPECT_EQ(Why(S_IFDIR | 0700, 8), "belongs to user 8, not to 7");
  EXPECT_EQ(Why(S_IFDIR | 0720, 7), "may be written by others: chmod go-w it");
  EXPECT_EQ(Why(S_IFDIR | 0702, 7), "may be written by others: chmod go-w it");
  EXPECT_EQ(Why(S_IFLNK | 0700, 7), "is no directory");
  EXPECT_EQ(Why(S_IFREG | 0700, 7), "is no directory");
}

}  // namespace
}  // namespace cairn
