#include "common/file/descriptor_message.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>

namespace cairn {
namespace {

class DescriptorMessageTest : public testing::Test {
 protected:
  DescriptorMessageTest() {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    sender_ = UniqueFd(ends[0]);
    receiver_ = UniqueFd(ends[1]);
  }

  static ino_t InodeOf(int fd) {
    struct stat info;
    EXPECT_EQ(fstat(fd, &info), 0);
    return info.st_ino;
  }

  // Sends a byte with several copies of `fd`, as no caller of SendMessage can.
  template <size_t kCount>
  void SendMany(int fd) {
    std::array<int, kCount> descriptors;
    descriptors.fill(fd);
    char byte = 'x';
    iovec data = {&byte, 1};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(descriptors))] = {};
    msghdr message = {};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(descriptors));
    std::memcpy(CMSG_DATA(header), descriptors.data(), sizeof(descriptors));
    ASSERT_EQ(sendmsg(sender_.get(), &message, 0), 1);
  }

  UniqueFd sender_;
  UniqueFd receiver_;
  std::array<char, 16> buffer_{};
  ReceivedMessage received_;
};

TEST_F(DescriptorMessageTest, Send_WithADescriptor_GivesTheSameFile) {
  const UniqueFd file(memfd_create("file", MFD_CLOEXEC));
  ASSERT_EQ(SendMessage(sender_.get(), "hello", file.get()), 0);
  ASSERT_EQ(ReceiveMessage(receiver_.get(), buffer_, 0, received_), 0);
  EXPECT_EQ(std::string(buffer_.data(), received_.bytes), "hello");
  EXPECT_FALSE(received_.truncated);
  ASSERT_EQ(received_.descriptors.size(), 1u);
  EXPECT_EQ(InodeOf(received_.descriptors[0].get()), InodeOf(file.get()));
  EXPECT_NE(fcntl(received_.descriptors[0].get(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST_F(DescriptorMessageTest, Send_WithoutADescriptor_GivesNone) {
  ASSERT_EQ(SendMessage(sender_.get(), "hello", -1), 0);
  ASSERT_EQ(ReceiveMessage(receiver_.get(), buffer_, 0, received_), 0);
  EXPECT_EQ(received_.bytes, 5u);
  EXPECT_TRUE(received_.descriptors.empty());
}

TEST_F(DescriptorMessageTest, Receive_MoreDescriptorsThanRoom_SaysSoAndOwnsThoseThatCame) {
  const UniqueFd file(memfd_create("file", MFD_CLOEXEC));
  SendMany<64>(file.get());
  ASSERT_EQ(ReceiveMessage(receiver_.get(), buffer_, 0, received_), 0);
  EXPECT_EQ(received_.descriptors.size(), kMostDescriptors);
  EXPECT_FALSE(received_.truncated);
  SendMany<100>(file.get());
  ASSERT_EQ(ReceiveMessage(receiver_.get(), buffer_, 0, received_), 0);
  EXPECT_TRUE(received_.truncated);
}

TEST_F(DescriptorMessageTest, Receive_MoreBytesThanRoom_SaysSo) {
  ASSERT_EQ(SendMessage(sender_.get(), std::string(17, 'x'), -1), 0);
  ASSERT_EQ(ReceiveMessage(receiver_.get(), buffer_, 0, received_), 0);
  EXPECT_TRUE(received_.truncated);
}

TEST_F(DescriptorMessageTest, Receive_NothingThere_ReturnsEagain) {
  EXPECT_EQ(ReceiveMessage(receiver_.get(), buffer_, MSG_DONTWAIT, received_), EAGAIN);
}

TEST_F(DescriptorMessageTest, Receive_PeerHasClosed_HasNoBytes) {
  sender_ = UniqueFd();
  ASSERT_EQ(ReceiveMessage(receiver_.get(), buffer_, 0, received_), 0);
  EXPECT_EQ(received_.bytes, 0u);
}

TEST_F(DescriptorMessageTest, Send_PeerHasGone_ReturnsEpipe) {
  receiver_ = UniqueFd();
  EXPECT_EQ(SendMessage(sender_.get(), "hello", -1), EPIPE);
}

TEST_F(DescriptorMessageTest, Send_SocketIsFull_ReturnsEagain) {
  int error = 0;
  for (int i = 0; i < 100000 && error == 0; ++i) error = SendMessage(sender_.get(), "hello", -1);
  EXPECT_EQ(error, EAGAIN);
}

}  // namespace
}  // namespace cairn
