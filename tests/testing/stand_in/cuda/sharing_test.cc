// Tests what the stand-in counts of memory that processes hold of each other.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "tests/testing/stand_in/cuda/loaded.h"

namespace cairn {
namespace {

constexpr int kPosix = static_cast<int>(cuda::kHandlePosix);
constexpr size_t kBytes = size_t{2} << 20;

void SendDescriptor(int socket, int descriptor) {
  char byte = 0;
  iovec data = {&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
  ASSERT_EQ(sendmsg(socket, &message, 0), 1);
}

int ReceiveDescriptor(int socket) {
  char byte = 0;
  iovec data = {&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  if (recvmsg(socket, &message, 0) != 1) return -1;
  int descriptor = -1;
  std::memcpy(&descriptor, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(int));
  return descriptor;
}

cuda::Result Import(const GpuDriver& driver, int file, cuda::AllocationHandle* handle) {
  return driver.call().memory_import(handle, reinterpret_cast<void*>(static_cast<intptr_t>(file)), kPosix);
}

// Imports what it is sent, answers with the result, and holds it until it is killed.
[[noreturn]] void Hold(int socket) {
  const int file = ReceiveDescriptor(socket);
  cuda::AllocationHandle handle = 0;
  const auto result = static_cast<char>(Import(*LoadedStandIn::Get().driver, file, &handle));
  close(file);
  if (write(socket, &result, 1) != 1) _exit(1);
  while (true) pause();
}

class StandInSharingTest : public testing::Test {
 protected:
  // The other process must not come from one that has opened the driver.
  static void SetUpTestSuite() {
    int ends[2] = {-1, -1};
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    holder_ = fork();
    if (holder_ == 0) Hold(ends[1]);
    close(ends[1]);
    socket_ = ends[0];
  }
  static void TearDownTestSuite() {
    if (holder_ > 0) {
      kill(holder_, SIGKILL);
      waitpid(holder_, nullptr, 0);
    }
    close(socket_);
  }

  void SetUp() override {
    gpu_.set("device_bytes", kBytes);
    ASSERT_EQ(call_.memory_create(&made_, kBytes, &properties_, 0), cuda::kSuccess);
    ASSERT_EQ(call_.memory_export(&file_, made_, kPosix, 0), cuda::kSuccess);
  }
  void TearDown() override {
    close(file_);
    gpu_.reset();
  }
  int64_t Count(const char* what) const { return gpu_.count(what); }
  bool HasRoom() {
    cuda::AllocationHandle another = 0;
    if (call_.memory_create(&another, kBytes, &properties_, 0) != cuda::kSuccess) return false;
    call_.memory_release(another);
    return true;
  }

  static pid_t holder_;
  static int socket_;
  const LoadedStandIn& gpu_ = LoadedStandIn::Get();
  const cuda::Functions& call_ = gpu_.driver->call();
  cuda::AllocationProperties properties_ = {.handle_types = kPosix};
  cuda::AllocationHandle made_ = 0;
  int file_ = -1;
};

pid_t StandInSharingTest::holder_ = -1;
int StandInSharingTest::socket_ = -1;

TEST_F(StandInSharingTest, Release_ExportedAndNotImported_FreesTheMemory) {
  EXPECT_EQ(Count("used_device_bytes"), kBytes);
  EXPECT_EQ(Count("lent_bytes"), 0) << "a descriptor alone is nobody's memory";
  call_.memory_release(made_);
  EXPECT_EQ(Count("used_device_bytes"), 0);
  EXPECT_TRUE(HasRoom());
}

TEST_F(StandInSharingTest, Release_StillImported_UsesTheMemoryUp) {
  cuda::AllocationHandle imported = 0;
  ASSERT_EQ(Import(*gpu_.driver, file_, &imported), cuda::kSuccess);
  EXPECT_EQ(Count("imported_bytes"), kBytes);
  call_.memory_release(made_);
  EXPECT_EQ(Count("lent_bytes"), kBytes);
  EXPECT_EQ(Count("used_device_bytes"), kBytes);
  EXPECT_FALSE(HasRoom());
  call_.memory_release(imported);
  EXPECT_EQ(Count("imported_bytes"), 0);
  EXPECT_EQ(Count("lent_bytes"), 0);
  EXPECT_TRUE(HasRoom());
}

TEST_F(StandInSharingTest, Kill_TheProcessThatHoldsIt_FreesTheMemory) {
  SendDescriptor(socket_, file_);
  char result = 1;
  ASSERT_EQ(read(socket_, &result, 1), 1);
  ASSERT_EQ(result, cuda::kSuccess);
  call_.memory_release(made_);
  EXPECT_EQ(Count("lent_bytes"), kBytes);
  EXPECT_FALSE(HasRoom());
  kill(holder_, SIGKILL);
  waitpid(holder_, nullptr, 0);
  holder_ = -1;
  EXPECT_EQ(Count("lent_bytes"), 0);
  EXPECT_TRUE(HasRoom());
}

TEST_F(StandInSharingTest, Import_OfADeviceThatTheProcessDoesNotSee_IsRefused) {
  cuda::AllocationHandle imported = 0;
  gpu_.set("first_device", 1);
  EXPECT_EQ(Import(*gpu_.driver, file_, &imported), cuda::kInvalidValue);
  call_.memory_release(made_);
}

}  // namespace
}  // namespace cairn
