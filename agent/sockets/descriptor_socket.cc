#include "agent/sockets/descriptor_socket.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "agent/sockets/socket_directory.h"
#include "common/base/clock.h"
#include "common/base/random_id.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

constexpr size_t kMaxConnections = 64;
constexpr int kTimeoutSeconds = 5;
// While nobody can be taken, because all places or the process's descriptors are in use.
constexpr absl::Duration kAcceptPause = absl::Milliseconds(100);

void SendAnswer(int connection, int error, int fd) {
  unsigned char byte = static_cast<unsigned char>(error);
  iovec data = {&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (error == 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &fd, sizeof(int));
  }
  // One byte always fits a fresh socket's buffer; a peer that is gone is its own fault.
  (void)sendmsg(connection, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

uint64_t FromLittleEndian(const unsigned char* bytes) {
  uint64_t value = 0;
  for (int i = 7; i >= 0; --i) value = value << 8 | bytes[i];
  return value;
}

}  // namespace

absl::StatusOr<std::unique_ptr<DescriptorSocket>> DescriptorSocket::Listen(const std::string& path, UserPolicy policy) {
  CAIRN_ASSIGN_OR_RETURN(UniqueFd listener, ListenOnUnixSocket(path, !policy.only_self()));
  UniqueFd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  return std::unique_ptr<DescriptorSocket>(
      new DescriptorSocket(path, std::move(policy), std::move(listener), std::move(wake)));
}

DescriptorSocket::DescriptorSocket(std::string path, UserPolicy policy, UniqueFd listener, UniqueFd wake)
    : path_(std::move(path)),
      policy_(std::move(policy)),
      listener_(std::move(listener)),
      wake_(std::move(wake)),
      thread_([this] { Serve(); }) {}

DescriptorSocket::~DescriptorSocket() {
  const uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof(one));
  thread_.join();
  unlink(path_.c_str());
}

absl::StatusOr<uint64_t> DescriptorSocket::Offer(std::shared_ptr<SharedMemory> memory, bool read_only) {
  Offered offered;
  if (read_only) {
    CAIRN_ASSIGN_OR_RETURN(offered.read_only, memory->OpenReadOnly());
  }
  offered.memory = std::move(memory);
  const uint64_t id = RandomId();
  MutexLock lock(mutex_);
  offered_.emplace(id, std::move(offered));
  return id;
}

void DescriptorSocket::Withdraw(uint64_t id) {
  MutexLock lock(mutex_);
  offered_.erase(id);
}

void DescriptorSocket::Answer(int connection, uint64_t id) {
  MutexLock lock(mutex_);
  const auto offered = offered_.find(id);
  if (offered == offered_.end()) return SendAnswer(connection, ENOENT, -1);
  SendAnswer(connection, 0, offered->second.fd());
}

// One thread for all: nothing here blocks, and a peer that says nothing is dropped after some seconds.
void DescriptorSocket::Serve() {
  struct Connection {
    UniqueFd fd;
    unsigned char request[8];
    size_t received = 0;
    absl::Time deadline;
  };
  std::vector<Connection> connections;
  absl::Time accept_from = absl::InfinitePast();
  while (true) {
    absl::Time now = Clock::Real().SteadyNow();
    // A listener whose connections cannot be taken stays readable: asked for that, poll would return at once, for ever.
    const bool full = connections.size() >= kMaxConnections;
    const bool accepting = !full && now >= accept_from;
    std::vector<pollfd> polled = {{wake_.get(), POLLIN, 0}, {accepting ? listener_.get() : -1, POLLIN, 0}};
    for (const Connection& connection : connections) polled.push_back({connection.fd.get(), POLLIN, 0});
    int timeout = connections.empty() ? -1 : 1000;
    if (!full && !accepting) timeout = static_cast<int>(absl::ToInt64Milliseconds(kAcceptPause));
    (void)poll(polled.data(), polled.size(), timeout);
    if (polled[0].revents != 0) return;
    now = Clock::Real().SteadyNow();
    std::vector<Connection> kept;
    for (size_t i = 0; i < connections.size(); ++i) {
      Connection& connection = connections[i];
      bool keep = now < connection.deadline;
      if (polled[i + 2].revents != 0) {
        const ssize_t got = recv(connection.fd.get(), connection.request + connection.received,
                                 sizeof(connection.request) - connection.received, MSG_DONTWAIT);
        if (got > 0) connection.received += static_cast<size_t>(got);
        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) keep = false;
        if (connection.received == sizeof(connection.request)) {
          Answer(connection.fd.get(), FromLittleEndian(connection.request));
          connection.received = 0;  // a connection may ask for several
          connection.deadline = now + absl::Seconds(kTimeoutSeconds);
        }
      }
      if (keep) kept.push_back(std::move(connection));
    }
    connections = std::move(kept);
    if (polled[1].revents == 0) continue;
    UniqueFd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd.valid()) {
      if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) accept_from = now + kAcceptPause;
      continue;
    }
    const auto peer = PeerOf(fd.get());
    if (!peer.ok() || !policy_.Check(*peer).ok()) {
      SendAnswer(fd.get(), EPERM, -1);
      continue;
    }
    connections.push_back({std::move(fd), {}, 0, now + absl::Seconds(kTimeoutSeconds)});
  }
}

absl::StatusOr<UniqueFd> ReceiveDescriptor(const std::string& path, uint64_t id, uid_t owner) {
  const auto unreachable = [&](std::string_view why, int error) {
    return MakeError(Reason::kAgentUnreachable,
                     absl::StrCat("descriptor socket ", path, ": ", absl::string_view(why.data(), why.size()), ": ",
                                  std::generic_category().message(error)),
                     {{"address", path}});
  };
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) return unreachable("connect", ENOENT);
  std::memcpy(address.sun_path, path.data(), path.size());
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval timeout = {kTimeoutSeconds, 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
  setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0)
    return unreachable("connect", errno);
  CAIRN_ASSIGN_OR_RETURN(const Peer peer, PeerOf(fd.get()));
  if (peer.uid != owner) {
    return MakeError(Reason::kPeerUid,
                     absl::StrCat("descriptor socket ", path, ": a process of user ", peer.uid,
                                  " listens there, not one of user ", owner),
                     {{"uid", absl::StrCat(peer.uid)}});
  }
  unsigned char request[8];
  for (int i = 0; i < 8; ++i) request[i] = static_cast<unsigned char>(id >> (8 * i));
  // A refused peer's answer may be there before its request is sent.
  (void)send(fd.get(), request, sizeof(request), MSG_NOSIGNAL);
  unsigned char byte = 0;
  iovec data = {&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t got = recvmsg(fd.get(), &message, MSG_CMSG_CLOEXEC);
  if (got < 0) return unreachable("receive", errno);
  if (got == 0) return unreachable("receive", ECONNRESET);
  if (byte == EPERM)
    return MakeError(Reason::kPeerUid, absl::StrCat("descriptor socket ", path, ": it serves another user"));
  if (byte != 0) return unreachable("the descriptor", byte);
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) {
    return unreachable("the answer has no descriptor", EPROTO);
  }
  int received = -1;
  std::memcpy(&received, CMSG_DATA(header), sizeof(int));
  return UniqueFd(received);
}

}  // namespace cairn
