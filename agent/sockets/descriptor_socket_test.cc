#include "agent/sockets/descriptor_socket.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/fake_clock.h"
#include "common/base/random_id.h"
#include "common/file/descriptor_message.h"
#include "common/resources/testing/no_descriptors.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

class DescriptorSocketTest : public testing::Test {
 protected:
  DescriptorSocketTest() {
    // A socket's path has at most 107 bytes, and a test's own directory may be deeper.
    directory_ = "/tmp/cairn-descriptors-" + RandomToken(6);
    std::filesystem::create_directories(directory_);
    path_ = directory_ + "/socket";
    socket_ = Listen({.job = "demo", .rank = 3, .incarnation = 0x0123456789abcdef});
  }
  ~DescriptorSocketTest() override {
    socket_.reset();
    std::filesystem::remove_all(directory_);
  }

  std::unique_ptr<DescriptorSocket> Listen(SocketOwner owner) {
    auto socket = DescriptorSocket::Listen(path_, UserPolicy(), std::move(owner), clock_);
    EXPECT_TRUE(socket.ok()) << socket.status();
    return *std::move(socket);
  }
  static std::shared_ptr<SharedMemory> Memory(const std::string& text) {
    auto memory = *SharedMemory::Create("test", 4096);
    std::memcpy(memory->data(), text.data(), text.size());
    return memory;
  }
  // Returns what the memory behind a descriptor begins with.
  static std::string Read(const UniqueFd& fd, size_t bytes) {
    std::string text(bytes, '\0');
    EXPECT_EQ(pread(fd.get(), text.data(), bytes, 0), static_cast<ssize_t>(bytes));
    return text;
  }
  // A connection that speaks for itself.
  UniqueFd Connect() const {
    UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ConnectBy(fd);
    return fd;
  }
  void ConnectBy(const UniqueFd& fd) const {
    ASSERT_TRUE(fd.valid());
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path_.data(), path_.size());
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }

  std::string directory_, path_;
  FakeClock clock_;
  std::unique_ptr<DescriptorSocket> socket_;
};

TEST_F(DescriptorSocketTest, Receive_OfferedMemory_IsTheSameMemory) {
  const auto memory = Memory("before");
  const auto id = socket_->Offer(memory, /*read_only=*/false);
  ASSERT_TRUE(id.ok()) << id.status();
  const auto fd = ReceiveDescriptor(path_, *id, geteuid());
  ASSERT_TRUE(fd.ok()) << fd.status();
  EXPECT_EQ(Read(*fd, 6), "before");
  ASSERT_EQ(pwrite(fd->get(), "after!", 6, 0), 6);
  EXPECT_EQ(std::string(memory->data(), 6), "after!");
}

TEST_F(DescriptorSocketTest, Receive_ReadOnlyMemory_CannotBeWritten) {
  const auto memory = Memory("sealed");
  const auto id = socket_->Offer(memory, /*read_only=*/true);
  ASSERT_TRUE(id.ok()) << id.status();
  const auto fd = ReceiveDescriptor(path_, *id, geteuid());
  ASSERT_TRUE(fd.ok()) << fd.status();
  EXPECT_EQ(Read(*fd, 6), "sealed");
  EXPECT_LT(pwrite(fd->get(), "broken", 6, 0), 0);
  EXPECT_EQ(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd->get(), 0), MAP_FAILED);
  std::memcpy(memory->data(), "change", 6);
  EXPECT_EQ(Read(*fd, 6), "change") << "its owner writes on";
}

TEST_F(DescriptorSocketTest, Receive_SeveralOffers_GivesTheOneOfTheId) {
  const uint64_t first = *socket_->Offer(Memory("first!"), false);
  const uint64_t second = *socket_->Offer(Memory("second"), false);
  EXPECT_EQ(Read(*ReceiveDescriptor(path_, first, geteuid()), 6), "first!");
  EXPECT_EQ(Read(*ReceiveDescriptor(path_, second, geteuid()), 6), "second");
}

TEST_F(DescriptorSocketTest, Receive_WithdrawnMemory_IsRefusedAndWhoHasItKeepsIt) {
  const uint64_t id = *socket_->Offer(Memory("memory"), false);
  const auto kept = ReceiveDescriptor(path_, id, geteuid());
  socket_->Withdraw(id);
  EXPECT_TRUE(HasReason(ReceiveDescriptor(path_, id, geteuid()).status(), Reason::kAgentUnreachable));
  EXPECT_EQ(Read(*kept, 6), "memory");
}

TEST_F(DescriptorSocketTest, Receive_AnIdThatNobodyOffered_IsRefused) {
  EXPECT_TRUE(HasReason(ReceiveDescriptor(path_, 12345, geteuid()).status(), Reason::kAgentUnreachable));
}

TEST_F(DescriptorSocketTest, Receive_NobodyListens_IsUnreachable) {
  socket_.reset();
  EXPECT_FALSE(std::filesystem::exists(path_)) << "it takes its path away";
  EXPECT_TRUE(HasReason(ReceiveDescriptor(path_, 1, geteuid()).status(), Reason::kAgentUnreachable));
  EXPECT_TRUE(HasReason(ReceiveDescriptor(std::string(200, 'x'), 1, geteuid()).status(), Reason::kAgentUnreachable));
}

TEST_F(DescriptorSocketTest, Receive_TheAgentIsOfAnotherUser_IsNotTrusted) {
  const uint64_t id = *socket_->Offer(Memory("memory"), false);
  EXPECT_TRUE(HasReason(ReceiveDescriptor(path_, id, geteuid() + 1).status(), Reason::kPeerUid));
  EXPECT_TRUE(HasReason(AskSocketOwner(path_, geteuid() + 1).status(), Reason::kPeerUid));
}

TEST_F(DescriptorSocketTest, Serve_SilentAndHalfRequests_DoNotHoldUpOthers) {
  const uint64_t id = *socket_->Offer(Memory("memory"), false);
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 20; ++i) {
    silent.push_back(Connect());
    if (i % 2 == 0) {
      ASSERT_EQ(send(silent.back().get(), "abc", 3, MSG_NOSIGNAL), 3);
    }
  }
  EXPECT_TRUE(ReceiveDescriptor(path_, id, geteuid()).ok());
}

TEST_F(DescriptorSocketTest, Serve_NoDescriptorLeft_ClosesAtOnceAndAnswersWhenThereAreSome) {
  const uint64_t id = *socket_->Offer(Memory("memory"), false);
  const UniqueFd client(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval long_time = {20, 0};
  ASSERT_EQ(setsockopt(client.get(), SOL_SOCKET, SO_RCVTIMEO, &long_time, sizeof(long_time)), 0);
  testing::internal::CaptureStderr();
  {
    const NoDescriptors none;
    ConnectBy(client);
    char byte = 0;
    EXPECT_EQ(recv(client.get(), &byte, 1, 0), 0);
  }
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("event=no_descriptors"), std::string::npos) << log;
  EXPECT_TRUE(ReceiveDescriptor(path_, id, geteuid()).ok());
}

TEST_F(DescriptorSocketTest, Serve_ARequestInTwoParts_IsAnswered) {
  const UniqueFd connection = Connect();
  const std::string request(8, '\xee');  // an id that was not offered
  ASSERT_EQ(send(connection.get(), request.data(), 3, MSG_NOSIGNAL), 3);
  ASSERT_TRUE(AskSocketOwner(path_, geteuid()).ok()) << "the first part has been read by now, or soon will be";
  ASSERT_EQ(send(connection.get(), request.data() + 3, 5, MSG_NOSIGNAL), 5);
  unsigned char answer = 0;
  ASSERT_EQ(recv(connection.get(), &answer, 1, 0), 1);
  EXPECT_EQ(answer, ENOENT);
}

TEST_F(DescriptorSocketTest, Serve_ASilentConnection_IsClosedInTheEnd) {
  const UniqueFd connection = Connect();
  ASSERT_TRUE(AskSocketOwner(path_, geteuid()).ok()) << "the connection before has been accepted by now";
  clock_.Advance(absl::Minutes(1));
  char byte = 0;
  EXPECT_EQ(recv(connection.get(), &byte, 1, 0), 0);
}

TEST_F(DescriptorSocketTest, Serve_ARequestThatCameWhileTheThreadStoodStill_IsAnswered) {
  const UniqueFd stopper = Connect(), connection = Connect();
  ASSERT_TRUE(AskSocketOwner(path_, geteuid()).ok()) << "the connections before have been accepted by now";
  std::promise<void> stands, goes_on;
  const uint64_t id = socket_->Await(0, [&](const std::vector<UniqueFd>&) {
    stands.set_value();
    goes_on.get_future().wait();
  });
  ASSERT_EQ(send(stopper.get(), &id, sizeof(id), MSG_NOSIGNAL), 8);
  stands.get_future().wait();
  clock_.Advance(absl::Minutes(1));
  const std::string request(8, '\xee');  // an id that was not offered
  ASSERT_EQ(send(connection.get(), request.data(), 8, MSG_NOSIGNAL), 8);
  goes_on.set_value();
  unsigned char answer = 0;
  ASSERT_EQ(recv(connection.get(), &answer, 1, 0), 1);
  EXPECT_EQ(answer, ENOENT);
}

TEST_F(DescriptorSocketTest, AskOwner_AnAgentListens_NamesItsJobRankAndIncarnation) {
  const auto owner = AskSocketOwner(path_, geteuid());
  ASSERT_TRUE(owner.ok()) << owner.status();
  EXPECT_EQ(owner->job, "demo");
  EXPECT_EQ(owner->rank, 3);
  EXPECT_EQ(owner->incarnation, 0x0123456789abcdef);
}

TEST_F(DescriptorSocketTest, AskOwner_AnAgentTookThePath_NamesTheNewOne) {
  socket_.reset();
  socket_ = Listen({.job = std::string(200, 'j'), .rank = 70000, .incarnation = UINT64_MAX});
  const auto owner = AskSocketOwner(path_, geteuid());
  ASSERT_TRUE(owner.ok()) << owner.status();
  EXPECT_EQ(owner->job, std::string(200, 'j'));
  EXPECT_EQ(owner->rank, 70000);
  EXPECT_EQ(owner->incarnation, UINT64_MAX);
}

// Sends an id with `count` descriptors of one pipe. Returns the answer: 0 or an errno, -1 for none.
int Give(int connection, uint64_t id, size_t count) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const UniqueFd reader(ends[0]), writer(ends[1]);
  const std::vector<int> descriptors(count, reader.get());
  EXPECT_EQ(SendMessage(connection, {reinterpret_cast<const char*>(&id), 8}, descriptors), 0);
  unsigned char answer = 0;
  return recv(connection, &answer, 1, 0) == 1 ? answer : -1;
}

TEST_F(DescriptorSocketTest, Await_AsManyDescriptorsAsWereAskedFor_GivesThemOnce) {
  std::vector<UniqueFd> came;
  const uint64_t id = socket_->Await(64, [&](std::vector<UniqueFd> descriptors) { came = std::move(descriptors); });
  const UniqueFd connection = Connect();
  EXPECT_EQ(Give(connection.get(), id, 64), 0);
  ASSERT_EQ(came.size(), 64u);
  EXPECT_TRUE(came.back().valid());
  EXPECT_EQ(Give(connection.get(), id, 64), ENOENT) << "once";
}

TEST_F(DescriptorSocketTest, Await_AnotherNumberOfDescriptors_IsRefusedAndAwaitedStill) {
  size_t came = 0;
  const uint64_t id = socket_->Await(2, [&](const std::vector<UniqueFd>& descriptors) { came = descriptors.size(); });
  const UniqueFd connection = Connect();
  for (const size_t count : {size_t{0}, size_t{1}, size_t{3}}) {
    EXPECT_EQ(Give(connection.get(), id, count), EINVAL) << count;
  }
  EXPECT_EQ(Give(connection.get(), id, 2), 0);
  EXPECT_EQ(came, 2u);
}

TEST_F(DescriptorSocketTest, StopAwaiting_DescriptorsThatComeLater_AreRefused) {
  const uint64_t id = socket_->Await(1, [](const std::vector<UniqueFd>&) { ADD_FAILURE(); });
  socket_->StopAwaiting(id);
  EXPECT_EQ(Give(Connect().get(), id, 1), ENOENT);
}

TEST_F(DescriptorSocketTest, Serve_DescriptorsThatNobodyAwaits_AreClosed) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  const UniqueFd connection = Connect();
  const uint64_t unknown = 12345;
  const int given[] = {writer.get()};
  ASSERT_EQ(SendMessage(connection.get(), {reinterpret_cast<const char*>(&unknown), 8}, given), 0);
  unsigned char answer = 0;
  ASSERT_EQ(recv(connection.get(), &answer, 1, 0), 1);
  EXPECT_EQ(answer, ENOENT);
  writer = UniqueFd();
  EXPECT_EQ(read(reader.get(), &answer, 1), 0) << "the pipe ends when nobody has its other end any more";
}

}  // namespace
}  // namespace cairn
