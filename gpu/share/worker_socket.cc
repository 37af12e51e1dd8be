#include "gpu/share/worker_socket.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/file/descriptor_message.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

absl::Status Broken(const std::string& what) {
  return MakeError(Reason::kTransportFailed, absl::StrCat("the socket of cairn-gpu-worker: ", what));
}

}  // namespace

absl::Status WorkerSocket::Send(const google::protobuf::MessageLite& message, int descriptor) {
  const std::string packet = message.SerializeAsString();
  if (packet.size() > kMaxPacket) {
    return MakeError(Reason::kMessageTooLarge,
                     absl::StrCat("a message of ", packet.size(), " bytes for cairn-gpu-worker"));
  }
  // There are few unanswered requests at a time, so a full socket means that the other end does not read.
  if (const int error = SendMessage(fd_.get(), packet, descriptor); error != 0) {
    return Broken(absl::StrCat("send: ", std::generic_category().message(error)));
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
  ReceivedMessage received;
  const int error = ReceiveMessage(fd_.get(), packet, MSG_DONTWAIT, received);
  if (error == ECONNRESET) return false;
  if (error != 0) return Broken(absl::StrCat("receive: ", std::generic_category().message(error)));
  if (received.bytes == 0) return false;
  if (received.truncated) return Broken("a packet exceeds the maximum size");
  if (received.descriptors.size() > 1) return Broken("a packet has several descriptors");
  if (!message.ParseFromArray(packet.data(), static_cast<int>(received.bytes))) return Broken("a packet is no message");
  descriptor = received.descriptors.empty() ? UniqueFd() : std::move(received.descriptors.front());
  return true;
}

bool WorkerSocket::closed() const {
  pollfd polled = {fd_.get(), 0, 0};
  return poll(&polled, 1, 0) == 1 && (polled.revents & (POLLHUP | POLLERR)) != 0;
}

void WorkerSocket::Close() { (void)shutdown(fd_.get(), SHUT_RDWR); }

}  // namespace cairn
