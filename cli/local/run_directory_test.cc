#include "cli/local/run_directory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

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
  EXPECT_LE(path.size() + 27, 107u) << path;
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

TEST_F(RunDirectoryTest, Take_OthersMayEnter_TheyReachSocketsAndListNothing) {
  const auto taken = RunDirectory::Take(path_, /*others_may_enter=*/true);
  ASSERT_TRUE(taken.ok()) << taken.status();
  struct stat info;
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0711u);
  ASSERT_EQ(stat((path_ + "/lock").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_EQ((*taken)->LocalAgentPattern(), "unix:" + path_ + "/local{local_rank}/agent.sock");
  EXPECT_EQ((*taken)->LocalSocketDirectory(3), path_ + "/local3");
}

// A command that looks for running coordinators while it runs one itself, as its watch of the mirror does.
TEST_F(RunDirectoryTest, HolderOf_OwnDirectory_IsThisProcessAndItStaysLocked) {
  auto taken = RunDirectory::Take(path_);
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_EQ(RunDirectory::HolderOf(path_), getpid());
  EXPECT_FALSE(RunDirectory::Take(path_).ok());
  const pid_t parent = getpid();
  // Looks as another process does, which knows nothing of what this one holds.
  const auto locked_for_others = [&] {
    const pid_t child = fork();
    if (child == 0) {
      struct flock lock = {};
      lock.l_type = F_WRLCK;
      const int fd = open((path_ + "/lock").c_str(), O_RDWR);
      const bool seen = fd >= 0 && fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type == F_WRLCK && lock.l_pid == parent;
      _exit(seen ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  };
  EXPECT_TRUE(locked_for_others());
  taken->reset();
  EXPECT_FALSE(locked_for_others());
  EXPECT_EQ(RunDirectory::HolderOf(path_), std::nullopt);
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

TEST_F(RunDirectoryTest, RunningCoordinators_SomeAreUp_TellsThoseAndNoOthers) {
  const char* before = std::getenv("XDG_RUNTIME_DIR");
  const std::string kept = before == nullptr ? "" : before;
  setenv("XDG_RUNTIME_DIR", base_.c_str(), 1);
  EXPECT_TRUE(RunDirectory::RunningCoordinators().empty());
  // The lock of a process is none for itself, so a child holds the directories.
  int ready[2], done[2];
  ASSERT_EQ(pipe(ready), 0);
  ASSERT_EQ(pipe(done), 0);
  const pid_t child = fork();
  if (child == 0) {
    std::vector<std::unique_ptr<RunDirectory>> held;
    for (const std::string job : {"team/b", "a", "without"}) {
      held.push_back(*RunDirectory::Take(RunDirectory::PathOf(job)));
      std::ofstream(held.back()->path() + "/coordinator.address") << "127.0.0.1:1\n";
      (void)held.back()->Describe(job, "/root of " + job);  // takes the address of the last run away
      if (job != "without") std::ofstream(held.back()->path() + "/coordinator.address") << "127.0.0.1:7\n";
    }
    (void)!write(ready[1], "x", 1);
    while (true) pause();
  }
  char byte;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  std::filesystem::create_directories(RunDirectory::PathOf("ended"));
  std::ofstream(RunDirectory::PathOf("ended") + "/job") << "ended\n";
  std::ofstream(RunDirectory::PathOf("ended") + "/coordinator.address") << "127.0.0.1:8\n";
  const auto running = RunDirectory::RunningCoordinators();
  ASSERT_EQ(running.size(), 2u);
  EXPECT_EQ(running[0].job, "a");
  EXPECT_EQ(running[1].job, "team/b");
  EXPECT_EQ(running[1].address, "127.0.0.1:7");
  EXPECT_EQ(running[1].root, "/root of team/b");
  std::filesystem::permissions(RunDirectory::PathOf("a"), std::filesystem::perms::all);
  EXPECT_EQ(RunDirectory::RunningCoordinators().size(), 1u) << "anybody may have put the address there";
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(RunDirectory::RunningCoordinators().empty());
  kept.empty() ? unsetenv("XDG_RUNTIME_DIR") : setenv("XDG_RUNTIME_DIR", kept.c_str(), 1);
}

// Anybody may make a directory of any name in /tmp.
TEST_F(RunDirectoryTest, PathOf_TheUsualPlaceIsForeign_IsAPlaceOfThisUsersOwn) {
  const char* before = std::getenv("XDG_RUNTIME_DIR");
  const std::string kept = before == nullptr ? "" : before;
  setenv("XDG_RUNTIME_DIR", base_.c_str(), 1);
  const std::string usual = base_ + "/cairn-" + std::to_string(geteuid());
  std::ofstream(usual) << "in the way";
  std::filesystem::create_directory(usual + "-000000");
  std::filesystem::permissions(usual + "-000000", std::filesystem::perms::all);  // a trap
  EXPECT_TRUE(RunDirectory::RunningCoordinators().empty());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(base_), {}), 2) << "to look makes nothing";
  const std::string path = RunDirectory::PathOf("demo");
  EXPECT_TRUE(path.starts_with(usual + "-")) << path;
  EXPECT_FALSE(path.starts_with(usual + "-000000")) << path;
  EXPECT_EQ(RunDirectory::PathOf("demo"), path) << "it is found again";
  const auto taken = RunDirectory::Take(path);
  ASSERT_TRUE(taken.ok()) << taken.status();
  struct stat info;
  ASSERT_EQ(stat(std::filesystem::path(path).parent_path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  EXPECT_EQ(std::filesystem::file_size(usual), 10u) << "what is in the way stays";
  kept.empty() ? unsetenv("XDG_RUNTIME_DIR") : setenv("XDG_RUNTIME_DIR", kept.c_str(), 1);
}

TEST_F(RunDirectoryTest, RemoveOtherSockets_OfAnEarlierRunWithMoreRanks_OwnOnesAndLogsStay) {
  const auto taken = RunDirectory::Take(path_);
  ASSERT_TRUE(taken.ok()) << taken.status();
  const std::string own = (*taken)->SocketDirectory(0), other = (*taken)->SocketDirectory(1);
  for (const std::string& directory : {own, other}) {
    std::filesystem::create_directory(directory);
    ASSERT_EQ(mknod((directory + "/agent.sock").c_str(), S_IFSOCK | 0600, 0), 0);
  }
  std::ofstream(other + "/kept") << "text";
  std::filesystem::create_directory_symlink(own, path_ + "/link");
  (*taken)->RemoveOtherSockets({own});
  EXPECT_TRUE(std::filesystem::exists(own + "/agent.sock"));
  EXPECT_FALSE(std::filesystem::exists(other + "/agent.sock"));
  EXPECT_TRUE(std::filesystem::exists(other + "/kept"));
}

TEST_F(RunDirectoryTest, RemoveOtherSockets_OfOtherPrograms_Stay) {
  const auto taken = RunDirectory::Take(path_);
  ASSERT_TRUE(taken.ok()) << taken.status();
  const std::vector<std::string> others = {"/gnupg/S.gpg-agent", "/spire/agent.sock", "/rank/agent.sock",
                                           "/rank1b/agent.sock", "/rank1/other.sock", "/local/agent.sock"};
  for (const std::string& each : others) {
    std::filesystem::create_directory(path_ + each.substr(0, each.rfind('/')));
    ASSERT_EQ(mknod((path_ + each).c_str(), S_IFSOCK | 0600, 0), 0);
  }
  (*taken)->RemoveOtherSockets({});
  for (const std::string& each : others) EXPECT_TRUE(std::filesystem::exists(path_ + each)) << each;
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
