#include "gpu/share/worker_socket.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "common/base/random_id.h"
#include "common/status/reason.h"
#include "gpu/share/gpu_worker.pb.h"

namespace cairn {
namespace {

struct Ends {
  Ends() {
    int fds[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
    raw = UniqueFd(fds[0]);
    socket.emplace(UniqueFd(fds[1]));
  }
  // Sends what no worker sends.
  void SendRaw(const std::string& packet, const std::vector<int>& descriptors) {
    std::string bytes = packet;
    iovec data = {bytes.data(), bytes.size()};
    std::vector<char> control(CMSG_SPACE(descriptors.size() * sizeof(int)));
    msghdr message = {};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    if (!descriptors.empty()) {
      message.msg_control = control.data();
      message.msg_controllen = control.size();
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
      std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size() * sizeof(int));
    }
    ASSERT_EQ(sendmsg(raw.get(), &message, 0), static_cast<ssize_t>(bytes.size()));
  }
  UniqueFd raw;
  std::optional<WorkerSocket> socket;
};

TEST(WorkerSocketTest, Receive_AMessageWithADescriptor_GivesBoth) {
  Ends ends;
  WorkerSocket sender(std::move(ends.raw));
  worker::WorkerRequest request;
  request.mutable_unmap()->set_memory(7);
  const UniqueFd null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(sender.Send(request, null.get()).ok());
  worker::WorkerRequest received;
  UniqueFd descriptor;
  EXPECT_TRUE(*ends.socket->Await(absl::Seconds(30)));
  EXPECT_TRUE(*ends.socket->Receive(received, descriptor));
  EXPECT_EQ(received.unmap().memory(), 7);
  EXPECT_TRUE(descriptor.valid());
}

TEST(WorkerSocketTest, Receive_OtherEndIsGone_SaysSo) {
  Ends ends;
  ends.raw = UniqueFd();
  worker::WorkerEvent event;
  UniqueFd descriptor;
  EXPECT_FALSE(*ends.socket->Receive(event, descriptor));
}

TEST(WorkerSocketTest, Receive_TooLargeOrTooManyDescriptors_IsRefusedAndLeavesNoneOpen) {
  const UniqueFd null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const int next = UniqueFd(dup(null.get())).get();
  for (const size_t descriptors : {size_t{2}, size_t{40}}) {
    Ends ends;
    ends.SendRaw("x", std::vector<int>(descriptors, null.get()));
    worker::WorkerEvent event;
    UniqueFd descriptor;
    EXPECT_TRUE(HasReason(ends.socket->Receive(event, descriptor).status(), Reason::kTransportFailed));
  }
  Ends ends;
  ends.SendRaw(std::string(WorkerSocket::kMaxPacket + 1, 'x'), {});
  worker::WorkerEvent event;
  UniqueFd descriptor;
  EXPECT_TRUE(HasReason(ends.socket->Receive(event, descriptor).status(), Reason::kTransportFailed));
  ends.socket.reset();
  ends.raw = UniqueFd();
  EXPECT_EQ(UniqueFd(dup(null.get())).get(), next);
}

TEST(WorkerSocketTest, Receive_AnyBytes_AreAMessageOrRefused) {
  Ends ends;
  for (int i = 0; i < 2000; ++i) {
    ends.SendRaw(RandomToken(1 + i % 40), {});
    worker::WorkerEvent event;
    UniqueFd descriptor;
    const auto received = ends.socket->Receive(event, descriptor);
    EXPECT_TRUE(received.ok() || HasReason(received.status(), Reason::kTransportFailed)) << received.status();
  }
}

TEST(WorkerSocketTest, Send_AMessageThatIsTooLarge_IsRefused) {
  Ends ends;
  worker::WorkerEvent event;
  event.mutable_failed()->set_error(std::string(WorkerSocket::kMaxPacket, 'x'));
  EXPECT_TRUE(HasReason(ends.socket->Send(event, -1), Reason::kMessageTooLarge));
}

}  // namespace
}  // namespace cairn
