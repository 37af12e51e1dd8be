#include "agent/gpu/worker_socket.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

constexpr size_t kMostDescriptors = 4;

absl::Status Broken(const std::string& what) {
  return MakeError(Reason::kTransportFailed, absl::StrCat("the socket of cairn-gpu-worker: ", what));
}

// Takes all descriptors of a message, so that none is left open.
std::vector<UniqueFd> DescriptorsOf(msghdr& message) {
  std::vector<UniqueFd> found;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
      found.emplace_back(fd);
    }
  }
  return found;
}

}  // namespace

absl::Status WorkerSocket::Send(const google::protobuf::MessageLite& message, int descriptor) {
  std::string packet = message.SerializeAsString();
  if (packet.size() > kMaxPacket) {
    return MakeError(Reason::kMessageTooLarge,
                     absl::StrCat("a message of ", packet.size(), " bytes for cairn-gpu-worker"));
  }
  iovec data = {packet.data(), packet.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr sent = {};
  sent.msg_iov = &data;
  sent.msg_iovlen = 1;
  if (descriptor >= 0) {
    sent.msg_control = control;
    sent.msg_controllen = sizeof(control);
    cmsghdr* header = CMSG_FIRSTHDR(&sent);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
  }
  // Each request is answered before the next one is sent, so a full socket means that the other end has stopped.
  while (sendmsg(fd_.get(), &sent, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
    if (errno != EINTR) return Broken(absl::StrCat("send: ", std::generic_category().message(errno)));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> WorkerSocket::Await(absl::Duration timeout) {
  pollfd polled = {fd_.get(), POLLIN, 0};
  const timespec wait = absl::ToTimespec(timeout);
  const int ready = ppoll(&polled, 1, timeout == absl::InfiniteDuration() ? nullptr : &wait, nullptr);
  if (ready < 0 && errno != EINTR) return Broken(absl::StrCat("poll: ", std::generic_category().message(errno)));
  return ready > 0;
}

absl::StatusOr<bool> WorkerSocket::Receive(google::protobuf::MessageLite& message, UniqueFd& descriptor) {
  std::vector<char> packet(kMaxPacket);
  iovec data = {packet.data(), packet.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(kMostDescriptors * sizeof(int))] = {};
  msghdr received = {};
  received.msg_iov = &data;
  received.msg_iovlen = 1;
  received.msg_control = control;
  received.msg_controllen = sizeof(control);
  const ssize_t got = recvmsg(fd_.get(), &received, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (got < 0 && errno == ECONNRESET) return false;
  if (got < 0) return Broken(absl::StrCat("receive: ", std::generic_category().message(errno)));
  std::vector<UniqueFd> descriptors = DescriptorsOf(received);
  if (got == 0) return false;
  if ((received.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) return Broken("a packet is larger than any may be");
  if (descriptors.size() > 1) return Broken("a packet has several descriptors");
  if (!message.ParseFromArray(packet.data(), static_cast<int>(got))) return Broken("a packet is no message");
  descriptor = descriptors.empty() ? UniqueFd() : std::move(descriptors.front());
  return true;
}

void WorkerSocket::Close() { (void)shutdown(fd_.get(), SHUT_RDWR); }

}  // namespace cairn
