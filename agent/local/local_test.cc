#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>

#include "agent/local/descriptor_socket.h"
#include "agent/local/socket_directory.h"
#include "agent/local/trainer_watch.h"
#include "common/base/mutex.h"
#include "common/base/random_id.h"
#include "common/rpc/reason.h"

namespace cairn {
namespace {

class LocalTest : public ::testing::Test {
 protected:
  void SetUp() override { directory_ = "/tmp/cairn-local-" + RandomToken(6); }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  // Runs `body` in a child process, as another user if `uid` says so; its exit status.
  static int InChild(const std::function<int()>& body, uid_t uid = 0) {
    const pid_t child = fork();
    if (child == 0) {
      if (uid != 0 && (setgid(uid) != 0 || setuid(uid) != 0)) _exit(99);
      _exit(body());
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  std::string directory_;
};

TEST_F(LocalTest, SocketDirectory_IsMadeForItsOwnerAlone) {
  ASSERT_TRUE(PrepareSocketDirectory(directory_ + "/inner", false).ok());
  struct stat info = {};
  ASSERT_EQ(stat((directory_ + "/inner").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  EXPECT_TRUE(PrepareSocketDirectory(directory_ + "/inner", false).ok()) << "again";
  // Too open: closed again.
  chmod((directory_ + "/inner").c_str(), 0755);
  EXPECT_TRUE(PrepareSocketDirectory(directory_ + "/inner", false).ok());
  ASSERT_EQ(stat((directory_ + "/inner").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
}

TEST_F(LocalTest, SocketDirectoriesThatOthersControl_AreRefused) {
  std::filesystem::create_directories(directory_);
  const auto refused = [](const std::string& path) {
    return HasReason(PrepareSocketDirectory(path, false), Reason::kSocketDirectory);
  };
  std::filesystem::create_directory(directory_ + "/open");
  chmod((directory_ + "/open").c_str(), 0777);
  EXPECT_TRUE(refused(directory_ + "/open"));
  std::filesystem::create_directory_symlink("/tmp", directory_ + "/link");
  EXPECT_TRUE(refused(directory_ + "/link"));
  std::ofstream(directory_ + "/file") << "x";
  EXPECT_TRUE(refused(directory_ + "/file"));
  EXPECT_TRUE(refused("/proc/cairn"));
  EXPECT_TRUE(refused(directory_ + "/" + std::string(120, 'x')));
  std::filesystem::create_directory(directory_ + "/foreign");
  if (chown((directory_ + "/foreign").c_str(), 12345, 12345) == 0) {  // only root, and in no sandbox, can
    EXPECT_TRUE(refused(directory_ + "/foreign"));
  }
}

TEST_F(LocalTest, DefaultSocketDirectory_FitsASocket_AndTellsRanksApart) {
  const std::string job(190, 'x');
  EXPECT_NE(DefaultSocketDirectory(job, 1), DefaultSocketDirectory(job, 2));
  EXPECT_LT(DefaultSocketDirectory(job, 123456).size(), 84u);
  EXPECT_EQ(DefaultSocketDirectory("a/b", 1).find("a/b"), std::string::npos);
}

TEST_F(LocalTest, TwoAgents_DoNotShareASocket_AndADeadOnesIsTaken) {
  std::filesystem::create_directories(directory_);
  const std::string path = directory_ + "/s";
  {
    const auto first = ListenOnUnixSocket(path, false);
    ASSERT_TRUE(first.ok()) << first.status();
    EXPECT_TRUE(HasReason(ListenOnUnixSocket(path, false).status(), Reason::kSocketDirectory));
  }
  EXPECT_TRUE(ListenOnUnixSocket(path, false).ok()) << "its owner is gone, the file still there";
}

TEST_F(LocalTest, Descriptor_ReachesAnotherProcess_ReadOnlyWhereAsked) {
  ASSERT_TRUE(PrepareSocketDirectory(directory_, false).ok());
  auto socket = DescriptorSocket::Listen(directory_ + "/d", UserPolicy());
  ASSERT_TRUE(socket.ok()) << socket.status();
  const auto memory = *SharedMemory::Create("test", 8192);
  memory->data()[5000] = 'q';
  const uint64_t writable = *(*socket)->Offer(memory, false);
  const uint64_t read_only = *(*socket)->Offer(memory, true);
  EXPECT_EQ(InChild([&] {
              const auto fd = ReceiveDescriptor(directory_ + "/d", writable);
              if (!fd.ok()) return 1;
              void* mapped = mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd->get(), 0);
              if (mapped == MAP_FAILED || static_cast<char*>(mapped)[5000] != 'q') return 2;
              static_cast<char*>(mapped)[0] = 'w';
              const auto other = ReceiveDescriptor(directory_ + "/d", read_only);
              if (!other.ok()) return 3;
              if (mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, other->get(), 0) != MAP_FAILED) return 4;
              return mmap(nullptr, 8192, PROT_READ, MAP_SHARED, other->get(), 0) == MAP_FAILED ? 5 : 0;
            }),
            0);
  EXPECT_EQ(memory->data()[0], 'w');
  EXPECT_TRUE(HasReason(ReceiveDescriptor(directory_ + "/d", writable + 1).status(), Reason::kAgentUnreachable));
  (*socket)->Withdraw(writable);
  EXPECT_FALSE(ReceiveDescriptor(directory_ + "/d", writable).ok());
  EXPECT_TRUE(HasReason(ReceiveDescriptor(directory_ + "/nobody", 1).status(), Reason::kAgentUnreachable));
}

TEST_F(LocalTest, AnotherUser_GetsNoDescriptor_UnlessAllowed) {
  if (InChild([] { return 0; }, 4321) != 0) GTEST_SKIP() << "only root, and in no sandbox, can become another user";
  ASSERT_TRUE(PrepareSocketDirectory(directory_, true).ok());
  const auto memory = *SharedMemory::Create("test", 4096);
  auto socket = DescriptorSocket::Listen(directory_ + "/d", UserPolicy({4321}));
  ASSERT_TRUE(socket.ok()) << socket.status();
  const uint64_t id = *(*socket)->Offer(memory, false);
  const auto receive = [&] {
    const auto fd = ReceiveDescriptor(directory_ + "/d", id);
    return fd.ok() ? 0 : HasReason(fd.status(), Reason::kPeerUid) ? 7 : 1;
  };
  EXPECT_EQ(InChild(receive, 4321), 0);
  EXPECT_EQ(InChild(receive, 4322), 7);
}

TEST_F(LocalTest, TrainerWatch_NoticesTheEndOfAProcess) {
  Mutex mutex;
  CondVar changed;
  uint64_t ended = 0;
  TrainerWatch watch([&](uint64_t incarnation) {
    MutexLock lock(mutex);
    ended = incarnation;
    changed.NotifyAll();
  });
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    char byte;
    (void)!read(pipe_ends[0], &byte, 1);
    pause();
  }
  EXPECT_TRUE(watch.Watch(42, child));
  kill(child, SIGKILL);
  {
    MutexLock lock(mutex);
    while (ended == 0 && changed.WaitFor(mutex, absl::Seconds(10))) {
    }
    EXPECT_EQ(ended, 42u);
  }
  waitpid(child, nullptr, 0);
  close(pipe_ends[0]);
  close(pipe_ends[1]);
  EXPECT_FALSE(watch.Watch(43, 0)) << "a process that the kernel does not name";
}

}  // namespace
}  // namespace cairn
