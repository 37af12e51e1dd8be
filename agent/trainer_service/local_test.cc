#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "agent/host/trainer_watch.h"
#include "agent/sockets/descriptor_socket.h"
#include "agent/sockets/lent_memory.h"
#include "agent/sockets/peer.h"
#include "agent/sockets/socket_directory.h"
#include "agent/transport/local_peer.h"
#include "common/base/mutex.h"
#include "common/base/random_id.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

const SocketOwner kOwner = {"demo", 3, 42};

class LocalTest : public ::testing::Test {
 protected:
  void SetUp() override { directory_ = "/tmp/cairn-local-" + RandomToken(6); }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  // Returns the processor time that other threads use in half a second. A thread that polls in a loop uses most of it.
  static absl::Duration ProcessorTimeOfHalfASecond() {
    timespec before = {}, after = {};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    poll(nullptr, 0, 500);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    return absl::DurationFromTimespec(after) - absl::DurationFromTimespec(before);
  }
  // A connection that says nothing.
  static UniqueFd Connect(const std::string& path) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) return UniqueFd();
    return fd;
  }
  static std::shared_ptr<const UniqueFd> OpenProcess(pid_t pid) {
    return std::make_shared<const UniqueFd>(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  }
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
  const uid_t owner_ = geteuid();
};

TEST_F(LocalTest, PrepareSocketDirectory_MissingOrTooOpen_IsForItsOwnerAlone) {
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

TEST_F(LocalTest, PrepareSocketDirectory_OthersControlIt_IsRefused) {
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

TEST_F(LocalTest, DefaultSocketDirectory_LongNameOfAJob_FitsASocketAndTellsRanksApart) {
  const std::string job(190, 'x');
  EXPECT_NE(DefaultSocketDirectory(job, 1), DefaultSocketDirectory(job, 2));
  EXPECT_LT(DefaultSocketDirectory(job, 123456).size(), 84u);
  EXPECT_EQ(DefaultSocketDirectory("a/b", 1).find("a/b"), std::string::npos);
}

TEST_F(LocalTest, ListenOnUnixSocket_AnotherListens_IsRefusedUntilItIsDead) {
  std::filesystem::create_directories(directory_);
  const std::string path = directory_ + "/s";
  {
    const auto first = ListenOnUnixSocket(path, false);
    ASSERT_TRUE(first.ok()) << first.status();
    EXPECT_TRUE(HasReason(ListenOnUnixSocket(path, false).status(), Reason::kSocketDirectory));
  }
  EXPECT_TRUE(ListenOnUnixSocket(path, false).ok()) << "its owner is gone, the file still there";
}

// As that of a stopped process after a while, whose clients have tried again and again.
TEST_F(LocalTest, ListenOnUnixSocket_ListenerWithoutRoom_IsNotTakenAndNotWaitedFor) {
  ASSERT_TRUE(PrepareSocketDirectory(directory_, false).ok());
  const std::string path = directory_ + "/agent.sock";
  const auto first = ListenOnUnixSocket(path, false);
  ASSERT_TRUE(first.ok()) << first.status();
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  std::vector<UniqueFd> waiting;
  do {
    waiting.emplace_back(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  } while (connect(waiting.back().get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  ASSERT_EQ(errno, EAGAIN);
  EXPECT_TRUE(HasReason(ListenOnUnixSocket(path, false).status(), Reason::kSocketDirectory));
}

TEST_F(LocalTest, DescriptorSocket_AnotherProcess_GetsTheMemoryReadOnlyWhereAsked) {
  ASSERT_TRUE(PrepareSocketDirectory(directory_, false).ok());
  auto socket = DescriptorSocket::Listen(directory_ + "/d", UserPolicy(), kOwner);
  ASSERT_TRUE(socket.ok()) << socket.status();
  const auto memory = *SharedMemory::Create("test", 8192);
  memory->data()[5000] = 'q';
  const uint64_t writable = *(*socket)->Offer(memory, false);
  const auto other_memory = *SharedMemory::Create("test", 8192);
  const uint64_t read_only = *(*socket)->Offer(other_memory, true);
  EXPECT_EQ(InChild([&] {
              const auto fd = ReceiveDescriptor(directory_ + "/d", writable, owner_);
              if (!fd.ok()) return 1;
              void* mapped = mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd->get(), 0);
              if (mapped == MAP_FAILED || static_cast<char*>(mapped)[5000] != 'q') return 2;
              static_cast<char*>(mapped)[0] = 'w';
              const auto other = ReceiveDescriptor(directory_ + "/d", read_only, owner_);
              if (!other.ok()) return 3;
              if (mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, other->get(), 0) != MAP_FAILED) return 4;
              return mmap(nullptr, 8192, PROT_READ, MAP_SHARED, other->get(), 0) == MAP_FAILED ? 5 : 0;
            }),
            0);
  EXPECT_EQ(memory->data()[0], 'w');
  EXPECT_TRUE(
      HasReason(ReceiveDescriptor(directory_ + "/d", writable + 1, owner_).status(), Reason::kAgentUnreachable));
  (*socket)->Withdraw(writable);
  EXPECT_FALSE(ReceiveDescriptor(directory_ + "/d", writable, owner_).ok());
  EXPECT_TRUE(HasReason(ReceiveDescriptor(directory_ + "/nobody", 1, owner_).status(), Reason::kAgentUnreachable));
}

TEST_F(LocalTest, DescriptorSocket_Asked_SaysWhoseItIs) {
  ASSERT_TRUE(PrepareSocketDirectory(directory_, false).ok());
  auto socket = DescriptorSocket::Listen(directory_ + "/d", UserPolicy(), kOwner);
  ASSERT_TRUE(socket.ok()) << socket.status();
  const auto found = AskSocketOwner(directory_ + "/d", owner_);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->job, "demo");
  EXPECT_EQ(found->rank, 3u);
  EXPECT_EQ(found->incarnation, 42u);
  EXPECT_TRUE(HasReason(AskSocketOwner(directory_ + "/d", owner_ + 1).status(), Reason::kPeerUid));
  EXPECT_TRUE(HasReason(AskSocketOwner(directory_ + "/nobody", owner_).status(), Reason::kAgentUnreachable));
}

TEST_F(LocalTest, PathOfAnotherAgent_LendsNoMemoryOfTheOneThatIsMeant) {
  ASSERT_TRUE(PrepareSocketDirectory(directory_, false).ok());
  auto socket = DescriptorSocket::Listen(directory_ + "/d", UserPolicy(), kOwner);
  ASSERT_TRUE(socket.ok()) << socket.status();
  v1::TransferPeer peer;
  peer.set_descriptor_socket(directory_ + "/d");
  peer.set_boot_id("boot");
  peer.set_incarnation(42);
  EXPECT_TRUE(LendsMemoryHere(peer, "boot"));
  EXPECT_FALSE(LendsMemoryHere(peer, "another boot"));
  peer.set_incarnation(43);
  EXPECT_FALSE(LendsMemoryHere(peer, "boot")) << "another container has the same path";
}

TEST_F(LocalTest, DescriptorSocket_AnotherUser_GetsNothingUnlessAllowed) {
  if (InChild([] { return 0; }, 4321) != 0) GTEST_SKIP() << "only root, and in no sandbox, can become another user";
  ASSERT_TRUE(PrepareSocketDirectory(directory_, true).ok());
  const auto memory = *SharedMemory::Create("test", 4096);
  auto socket = DescriptorSocket::Listen(directory_ + "/d", UserPolicy({4321}), kOwner);
  ASSERT_TRUE(socket.ok()) << socket.status();
  const uint64_t id = *(*socket)->Offer(memory, false);
  const auto receive = [&] {
    const auto fd = ReceiveDescriptor(directory_ + "/d", id, owner_);
    return fd.ok() ? 0 : HasReason(fd.status(), Reason::kPeerUid) ? 7 : 1;
  };
  EXPECT_EQ(InChild(receive, 4321), 0);
  EXPECT_EQ(InChild(receive, 4322), 7);
}

TEST_F(LocalTest, TrainerWatch_ProcessIsKilled_TellsIt) {
  Mutex mutex;
  CondVar changed;
  uint64_t ended = 0;
  TrainerWatch watch([&](uint64_t incarnation, TrainerEnd how) {
    MutexLock lock(mutex);
    EXPECT_EQ(how, TrainerEnd::kEnded);
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
  watch.WatchProcess(42, OpenProcess(child));
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
}

TEST_F(LocalTest, TrainerWatch_ConnectionEnds_SaysThatTheTrainerIsGone_NotItsMemory) {
  Mutex mutex;
  CondVar changed;
  std::vector<uint64_t> detached;
  TrainerWatch watch([&](uint64_t incarnation, TrainerEnd how) {
    MutexLock lock(mutex);
    EXPECT_EQ(how, TrainerEnd::kDetached);
    detached.push_back(incarnation);
    changed.NotifyAll();
  });
  int lasting[2];
  int ending[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, lasting), 0);
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ending), 0);
  watch.WatchConnection(1, std::make_shared<const UniqueFd>(lasting[0]));
  watch.WatchConnection(2, std::make_shared<const UniqueFd>(ending[0]));
  ASSERT_EQ(write(lasting[1], "call", 4), 4) << "what a trainer sends is no end";
  close(ending[1]);
  MutexLock lock(mutex);
  while (detached.empty() && changed.WaitFor(mutex, absl::Seconds(10))) {
  }
  EXPECT_EQ(detached, std::vector<uint64_t>{2});
  close(lasting[1]);
}

TEST_F(LocalTest, PeerEnd_ShowsTheEndOfTheProcessThatConnected) {
  ASSERT_TRUE(PrepareSocketDirectory(directory_, false).ok());
  const auto listener = ListenOnUnixSocket(directory_ + "/s", false);
  ASSERT_TRUE(listener.ok()) << listener.status();
  const pid_t child = fork();
  if (child == 0) {
    const UniqueFd connection = Connect(directory_ + "/s");
    while (true) pause();
  }
  pollfd waiting = {listener->get(), POLLIN, 0};
  ASSERT_EQ(poll(&waiting, 1, 10000), 1);
  const UniqueFd accepted(accept4(listener->get(), nullptr, nullptr, SOCK_CLOEXEC));
  const auto peer = PeerOf(accepted.get());
  ASSERT_TRUE(peer.ok()) << peer.status();
  EXPECT_EQ(peer->pid, child);
  const PeerEnd end = EndOf(accepted.get(), *peer);
  ASSERT_NE(end.process, nullptr) << "this process sees its child, whatever the kernel's version";
  EXPECT_EQ(end.connection, nullptr);
  pollfd ended = {end.process->get(), POLLIN, 0};
  EXPECT_EQ(poll(&ended, 1, 0), 0);
  kill(child, SIGKILL);
  EXPECT_EQ(poll(&ended, 1, 10000), 1);
  waitpid(child, nullptr, 0);
}

TEST_F(LocalTest, TrainerWatch_SeveralProcessesEnd_TellsAllButTheForgotten) {
  Mutex mutex;
  CondVar changed;
  std::vector<uint64_t> ended;
  TrainerWatch watch([&](uint64_t incarnation, TrainerEnd) {
    MutexLock lock(mutex);
    ended.push_back(incarnation);
    changed.NotifyAll();
  });
  std::vector<pid_t> children;
  for (uint64_t incarnation : {1, 2, 3}) {
    children.push_back(fork());
    if (children.back() == 0) {
      while (true) pause();
    }
    watch.WatchProcess(incarnation, OpenProcess(children.back()));
  }
  watch.Forget(1);
  for (pid_t child : children) {
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
  MutexLock lock(mutex);
  while (ended.size() < 2 && changed.WaitFor(mutex, absl::Seconds(10))) {
  }
  std::sort(ended.begin(), ended.end());
  EXPECT_EQ(ended, (std::vector<uint64_t>{2, 3}));
}

TEST_F(LocalTest, LentMemory_OpenedInAnyWay_IsReadOnlyForEverybodyElse) {
  ASSERT_TRUE(PrepareSocketDirectory(directory_, false).ok());
  auto socket = DescriptorSocket::Listen(directory_ + "/d", UserPolicy(), kOwner);
  ASSERT_TRUE(socket.ok()) << socket.status();
  const auto memory = *SharedMemory::Create("test", 8192);
  const uint64_t writers = *(*socket)->Offer(memory, false);
  const auto opened = LentMemory::Map(directory_ + "/d", writers, 8192, owner_);
  EXPECT_TRUE(HasReason(opened.status(), Reason::kMemoryUnsealed)) << "nobody lends it yet: " << opened.status();
  const UniqueFd before = *ReceiveDescriptor(directory_ + "/d", writers, owner_);
  char* const rightful = static_cast<char*>(mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, before.get(), 0));
  ASSERT_NE(rightful, MAP_FAILED);

  const uint64_t readers = *(*socket)->Offer(memory, true);
  const auto lent = LentMemory::Map(directory_ + "/d", readers, 8192, owner_);
  ASSERT_TRUE(lent.ok()) << lent.status();
  rightful[5] = 'w';
  memory->data()[6] = 'a';
  EXPECT_EQ((*lent)->data()[5], 'w') << "who had it mapped goes on";
  EXPECT_EQ((*lent)->data()[6], 'a');
  const UniqueFd again = *ReceiveDescriptor(directory_ + "/d", writers, owner_);
  const UniqueFd reader = *ReceiveDescriptor(directory_ + "/d", readers, owner_);
  for (int fd : {before.get(), again.get(), reader.get()}) {
    // As the owner of the memory a process can open it again, but still cannot write to it.
    const UniqueFd anew(open(("/proc/self/fd/" + std::to_string(fd)).c_str(), O_RDWR | O_CLOEXEC));
    for (int way : {fd, anew.get()}) {
      if (way < 0) continue;
      EXPECT_EQ(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, way, 0), MAP_FAILED);
      EXPECT_LT(pwrite(way, "x", 1, 0), 0);
      EXPECT_NE(ftruncate(way, 0), 0);
      EXPECT_NE(fallocate(way, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), 0);
    }
    void* const readable = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd, 0);
    ASSERT_NE(readable, MAP_FAILED);
    EXPECT_NE(mprotect(readable, 4096, PROT_READ | PROT_WRITE), 0);
    munmap(readable, 4096);
  }
  EXPECT_TRUE((*socket)->Offer(memory, true).ok()) << "it may be lent again";
  munmap(rightful, 8192);
  EXPECT_TRUE(HasReason(LentMemory::Map(directory_ + "/d", readers, 16384, owner_).status(), Reason::kTransportFailed));
  EXPECT_TRUE(HasReason(LentMemory::Map(directory_ + "/d", readers, 8192, owner_ + 1).status(), Reason::kPeerUid));
}

TEST_F(LocalTest, DescriptorSocket_MoreConnectionsThanPlaces_AreTakenLaterWithoutProcessorTime) {
  ASSERT_TRUE(PrepareSocketDirectory(directory_, false).ok());
  auto socket = DescriptorSocket::Listen(directory_ + "/d", UserPolicy(), kOwner);
  ASSERT_TRUE(socket.ok()) << socket.status();
  const auto memory = *SharedMemory::Create("test", 4096);
  const uint64_t id = *(*socket)->Offer(memory, true);
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 70; ++i) silent.push_back(Connect(directory_ + "/d"));
  EXPECT_LT(ProcessorTimeOfHalfASecond(), absl::Milliseconds(100));
  silent.clear();
  EXPECT_TRUE(ReceiveDescriptor(directory_ + "/d", id, owner_).ok());
}

TEST_F(LocalTest, DescriptorSocket_OutOfDescriptors_WaitsWithoutSpinning) {
  ASSERT_TRUE(PrepareSocketDirectory(directory_, false).ok());
  EXPECT_EQ(InChild([&] {
              auto socket = DescriptorSocket::Listen(directory_ + "/d", UserPolicy(), kOwner);
              if (!socket.ok()) return 1;
              const auto memory = *SharedMemory::Create("test", 4096);
              const uint64_t id = *(*socket)->Offer(memory, true);
              std::vector<UniqueFd> others;
              while (true) {
                UniqueFd other(dup(0));
                if (!other.valid()) break;
                others.push_back(std::move(other));
              }
              others.pop_back();
              const UniqueFd late = Connect(directory_ + "/d");  // takes the last one: none is left to accept with
              if (!late.valid() || ProcessorTimeOfHalfASecond() > absl::Milliseconds(100)) return 2;
              others.clear();
              return ReceiveDescriptor(directory_ + "/d", id, owner_).ok() ? 0 : 3;
            }),
            0);
}

}  // namespace
}  // namespace cairn
