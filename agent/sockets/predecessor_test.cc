#include "agent/sockets/predecessor.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "common/status/reason.h"

namespace cairn {
namespace {

class PredecessorTest : public testing::Test {
 protected:
  PredecessorTest() {
    std::string pattern = testing::TempDir() + "/predecessor-XXXXXX";
    directory_ = mkdtemp(pattern.data());
  }
  ~PredecessorTest() override { std::filesystem::remove_all(directory_); }

  std::string directory_;
};

TEST_F(PredecessorTest, EachProcess_LearnsWhoRegisteredLast) {
  EXPECT_EQ(PredecessorIn(directory_), 0u);
  for (const uint64_t incarnation : {uint64_t{7}, UINT64_MAX, uint64_t{9}}) {
    ASSERT_TRUE(LeaveToSuccessor(directory_, incarnation).ok());
    EXPECT_EQ(PredecessorIn(directory_), incarnation);
  }
  struct stat found = {};
  ASSERT_EQ(stat((directory_ + "/incarnation").c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0600u);
}

TEST_F(PredecessorTest, WhatIsNoIncarnation_IsNobodys) {
  for (const char* text : {"", "7", "000000000000000g", "00000000000000070", "0000000000000007 and more than that"}) {
    std::ofstream(directory_ + "/incarnation") << text;
    EXPECT_EQ(PredecessorIn(directory_), 0u) << text;
  }
}

TEST_F(PredecessorTest, Link_IsNotFollowed) {
  std::ofstream(directory_ + "/elsewhere") << "0000000000000007\n";
  std::filesystem::create_symlink("elsewhere", directory_ + "/incarnation");
  EXPECT_EQ(PredecessorIn(directory_), 0u);
  ASSERT_TRUE(LeaveToSuccessor(directory_, 8).ok());
  EXPECT_EQ(PredecessorIn(directory_), 8u);
  std::string kept;
  std::ifstream(directory_ + "/elsewhere") >> kept;
  EXPECT_EQ(kept, "0000000000000007");
}

TEST_F(PredecessorTest, UnfinishedFileOfADeadProcess_IsInNobodysWay) {
  std::ofstream(directory_ + "/incarnation.new") << "half";
  ASSERT_TRUE(LeaveToSuccessor(directory_, 8).ok());
  EXPECT_EQ(PredecessorIn(directory_), 8u);
}

TEST_F(PredecessorTest, DirectoryThatIsGone_IsNamed) {
  const absl::Status status = LeaveToSuccessor(directory_ + "/gone", 8);
  EXPECT_TRUE(HasReason(status, Reason::kSocketDirectory)) << status;
  EXPECT_EQ(PredecessorIn(directory_ + "/gone"), 0u);
}

}  // namespace
}  // namespace cairn
