#include "cli/run_directory.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "common/status/reason.h"

namespace cairn::cli {
namespace {

class RunDirectoryTest : public testing::Test {
 protected:
  RunDirectoryTest() {
    std::string pattern = "/tmp/run-directory-XXXXXX";
    base_ = mkdtemp(pattern.data());
    path_ = base_ + "/cairn/up-demo";
  }
  ~RunDirectoryTest() override { std::filesystem::remove_all(base_); }

  std::string base_;
  std::string path_;
};

TEST_F(RunDirectoryTest, PathOf_LongNames_LeaveRoomForSockets) {
  const std::string path = RunDirectory::PathOf(std::string(200, 'j'));
  EXPECT_LE(path.size() + 26, 107u) << path;
  EXPECT_NE(path, RunDirectory::PathOf(std::string(201, 'j')));
  EXPECT_NE(RunDirectory::PathOf("a/b"), RunDirectory::PathOf("a_b")) << "two jobs do not share a directory";
}

TEST_F(RunDirectoryTest, Take_NobodyHoldsIt_IsPrivateAndHeld) {
  EXPECT_EQ(RunDirectory::HolderOf(path_), std::nullopt);
  const auto taken = RunDirectory::Take(path_);
  ASSERT_TRUE(taken.ok()) << taken.status();
  struct stat info;
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  EXPECT_EQ((*taken)->AgentPattern(), "unix:" + path_ + "/rank{rank}/agent.sock");
  EXPECT_EQ((*taken)->SocketDirectory(3), path_ + "/rank3");
}

TEST_F(RunDirectoryTest, Take_AnotherProcessHoldsIt_NamesThatProcess) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto held = RunDirectory::Take(path_);
    if (held.ok()) (void)!write(ready[1], "x", 1);
    while (true) pause();
  }
  char byte;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  EXPECT_EQ(RunDirectory::HolderOf(path_), child);
  const absl::Status refused = RunDirectory::Take(path_).status();
  EXPECT_TRUE(HasReason(refused, Reason::kSocketDirectory)) << refused;
  EXPECT_NE(refused.message().find(std::to_string(child)), std::string::npos) << refused;
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(RunDirectory::HolderOf(path_), std::nullopt) << "its holder is dead";
  EXPECT_TRUE(RunDirectory::Take(path_).ok());
}

TEST_F(RunDirectoryTest, Take_DirectoryThatOthersMayWrite_IsRefused) {
  std::filesystem::create_directories(path_);
  std::filesystem::permissions(path_, std::filesystem::perms::all);
  EXPECT_TRUE(HasReason(RunDirectory::Take(path_).status(), Reason::kSocketDirectory));
  EXPECT_TRUE(HasReason(RunDirectory::Take("relative").status(), Reason::kSocketDirectory));
  EXPECT_TRUE(HasReason(RunDirectory::Take("/tmp/" + std::string(100, 'x')).status(), Reason::kSocketDirectory));
}

TEST_F(RunDirectoryTest, NewLog_SecondRun_KeepsTheLogOfTheFirst) {
  const auto taken = RunDirectory::Take(path_);
  ASSERT_TRUE(taken.ok()) << taken.status();
  std::ofstream((*taken)->NewLog("rank0")) << "first";
  std::ofstream((*taken)->NewLog("rank0")) << "second";
  std::string kept;
  std::ifstream(path_ + "/rank0.log.1") >> kept;
  EXPECT_EQ(kept, "first");
}

}  // namespace
}  // namespace cairn::cli
