// Memory of a real other process. Mapping it needs root's rights, which a sandbox takes away.
#include "tests/testing/stand_in/nccl/peer_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <string>

namespace cairn::stand_in {
namespace {

constexpr size_t kBytes = size_t{64} << 10;
constexpr size_t kInside = 5000;

int MakeFile(char fill) {
  const int fd = memfd_create("peer", MFD_CLOEXEC);
  const std::string content(kBytes, fill);
  return write(fd, content.data(), content.size()) == static_cast<ssize_t>(content.size()) ? fd : -1;
}

// Another process, which holds a file of 'a' mapped, and tells where.
class Peer {
 public:
  Peer() {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    child_ = fork();
    if (child_ == 0) {
      close(ends[0]);
      Live(ends[1]);
    }
    close(ends[1]);
    socket_ = ends[0];
    EXPECT_EQ(recv(socket_, &told_, sizeof(told_), 0), static_cast<ssize_t>(sizeof(told_)));
  }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;
  ~Peer() {
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
    close(socket_);
  }

  const SharedRange& shared() const { return told_.shared; }
  const SharedRange& unshared() const { return told_.unshared; }
  const char* bytes() const { return told_.bytes; }
  // The peer writes 'b' over what it has mapped.
  void Write() { Ask('w'); }
  // The peer maps a file of 'c' at the same address.
  void MapAnotherFile() { Ask('m'); }

 private:
  struct Told {
    SharedRange shared, unshared;
    const char* bytes = nullptr;
  };

  void Ask(char what) {
    ASSERT_EQ(send(socket_, &what, 1, 0), 1);
    ASSERT_EQ(recv(socket_, &what, 1, 0), 1);
  }

  [[noreturn]] static void Live(int socket) {
    void* data = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, MakeFile('a'), 0);
    void* own = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    PeerMemory memory;
    Told told;
    told.bytes = static_cast<const char*>(data) + kInside;
    told.shared = memory.FindOwn(told.bytes, 100);
    told.unshared = memory.FindOwn(static_cast<const char*>(own), 100);
    (void)send(socket, &told, sizeof(told), 0);
    char what = 0;
    while (recv(socket, &what, 1, 0) == 1) {
      if (what == 'w') std::memset(data, 'b', kBytes);
      if (what == 'm') mmap(data, kBytes, PROT_READ, MAP_SHARED | MAP_FIXED, MakeFile('c'), 0);
      (void)send(socket, &what, 1, 0);
    }
    _exit(0);
  }

  pid_t child_ = -1;
  int socket_ = -1;
  Told told_;
};

class PeerMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (PeerMemory().Map(peer_.shared(), peer_.bytes()) == nullptr) {
      GTEST_SKIP() << "the system does not let this process map what another one has mapped";
    }
  }
  Peer peer_;
  PeerMemory memory_;
};

TEST_F(PeerMemoryTest, Map_SharedFile_ShowsWhatThePeerWrites) {
  const auto bytes = memory_.Map(peer_.shared(), peer_.bytes());
  ASSERT_NE(bytes, nullptr);
  EXPECT_EQ(std::string(bytes.get(), 100), std::string(100, 'a'));
  peer_.Write();
  EXPECT_EQ(std::string(bytes.get(), 100), std::string(100, 'b'));
  EXPECT_EQ(memory_.Map(peer_.shared(), peer_.bytes()), bytes) << "it is mapped once";
}

TEST_F(PeerMemoryTest, Map_AnotherFileStandsThere_IsRefusedAndNotReadFromTheOldOne) {
  ASSERT_NE(memory_.Map(peer_.shared(), peer_.bytes()), nullptr);
  peer_.MapAnotherFile();
  EXPECT_EQ(memory_.Map(peer_.shared(), peer_.bytes()), nullptr);
  EXPECT_EQ(PeerMemory().Map(peer_.shared(), peer_.bytes()), nullptr);
}

TEST_F(PeerMemoryTest, Map_BytesOutsideOfTheRange_AreRefused) {
  const auto* end = reinterpret_cast<const char*>(peer_.shared().end);
  EXPECT_EQ(memory_.Map(peer_.shared(), end), nullptr);
  EXPECT_EQ(memory_.Map(peer_.shared(), end - kBytes - 1), nullptr);
}

TEST_F(PeerMemoryTest, FindOwn_PrivateMemory_IsNone) { EXPECT_EQ(peer_.unshared().begin, 0U); }

TEST_F(PeerMemoryTest, FindOwn_MoreThanTheMapping_IsNone) {
  void* data = mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, MakeFile('a'), 0);
  const auto* bytes = static_cast<const char*>(data);
  EXPECT_EQ(memory_.FindOwn(bytes, kBytes).begin, reinterpret_cast<uintptr_t>(bytes));
  EXPECT_EQ(memory_.FindOwn(bytes + kInside, kBytes).begin, 0U);
  munmap(data, kBytes);
  EXPECT_EQ(memory_.FindOwn(bytes, 1).begin, 0U) << "it is not mapped any more";
}

}  // namespace
}  // namespace cairn::stand_in
