#include "agent/sockets/descriptor_socket.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iterator>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "agent/sockets/socket_directory.h"
#include "common/base/clock.h"
#include "common/base/random_id.h"
#include "common/file/descriptor_message.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

constexpr size_t kMaxConnections = 64;
constexpr int kTimeoutSeconds = 5;
// The number of bytes before the job's name in the answer to the id 0.
constexpr size_t kOwnerBytes = 1 + 8 + 4 + 4;
constexpr size_t kMaxJobBytes = 1024;
// The pause after no connection could be accepted, because all places or descriptors were in use.
constexpr absl::Duration kAcceptPause = absl::Milliseconds(100);

void SendAnswer(int connection, int error, int fd) {
  const char byte = static_cast<char>(error);
  // One byte always fits into the buffer of a new socket. An error means that the peer has gone, and is ignored.
  (void)SendMessage(connection, {&byte, 1}, error == 0 ? fd : -1);
}

uint64_t FromLittleEndian(const unsigned char* bytes, int count) {
  uint64_t value = 0;
  for (int i = count - 1; i >= 0; --i) value = value << 8 | bytes[i];
  return value;
}

void AppendLittleEndian(uint64_t value, int count, std::string& bytes) {
  for (int i = 0; i < count; ++i) bytes += static_cast<char>(value >> (8 * i));
}

std::string OwnerAnswer(const SocketOwner& owner) {
  std::string answer(1, '\0');
  AppendLittleEndian(owner.incarnation, 8, answer);
  AppendLittleEndian(owner.rank, 4, answer);
  AppendLittleEndian(owner.job.size(), 4, answer);
  return answer + owner.job;
}

absl::Status Unreachable(const std::string& path, absl::string_view why, int error) {
  return MakeError(Reason::kAgentUnreachable,
                   absl::StrCat("descriptor socket ", path, ": ", why, ": ", std::generic_category().message(error)),
                   {{"address", path}});
}

// Connects to the descriptor socket of an agent that runs as `owner`. Calls on it block for some seconds at most.
absl::StatusOr<UniqueFd> ConnectTo(const std::string& path, uid_t owner) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) return Unreachable(path, "connect", ENOENT);
  std::memcpy(address.sun_path, path.data(), path.size());
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return Unreachable(path, "socket", errno);
  const timeval timeout = {kTimeoutSeconds, 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
  setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0)
    return Unreachable(path, "connect", errno);
  CAIRN_ASSIGN_OR_RETURN(const Peer peer, PeerOf(fd.get()));
  if (peer.uid != owner) {
    return MakeError(Reason::kPeerUid,
                     absl::StrCat("descriptor socket ", path, ": a process of user ", peer.uid,
                                  " listens there, not one of user ", owner),
                     {{"uid", absl::StrCat(peer.uid)}});
  }
  return fd;
}

// Errors are ignored: the agent may refuse the connection before the request is sent, and its answer says so.
void SendRequest(int connection, uint64_t id) {
  std::string request;
  AppendLittleEndian(id, 8, request);
  (void)send(connection, request.data(), request.size(), MSG_NOSIGNAL);
}

absl::Status Refused(const std::string& path, unsigned char error) {
  if (error != EPERM) return Unreachable(path, "the descriptor", error);
  return MakeError(Reason::kPeerUid, absl::StrCat("descriptor socket ", path, ": it serves another user"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<DescriptorSocket>> DescriptorSocket::Listen(const std::string& path, UserPolicy policy,
                                                                           SocketOwner owner, const Clock& clock) {
  CAIRN_ASSIGN_OR_RETURN(UniqueFd listener, ListenOnUnixSocket(path, !policy.only_self()));
  UniqueFd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  return std::unique_ptr<DescriptorSocket>(
      new DescriptorSocket(path, std::move(policy), std::move(owner), clock, std::move(listener), std::move(wake)));
}

DescriptorSocket::DescriptorSocket(std::string path, UserPolicy policy, SocketOwner owner, const Clock& clock,
                                   UniqueFd listener, UniqueFd wake)
    : path_(std::move(path)),
      policy_(std::move(policy)),
      owner_(std::move(owner)),
      clock_(clock),
      listener_(std::move(listener)),
      wake_(std::move(wake)),
      acceptor_(clock),
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
    CAIRN_ASSIGN_OR_RETURN(offered.own, memory->OpenReadOnly());
  }
  offered.memory = std::move(memory);
  const uint64_t id = RandomId();
  MutexLock lock(mutex_);
  offered_.emplace(id, std::move(offered));
  return id;
}

uint64_t DescriptorSocket::OfferDescriptor(UniqueFd descriptor) {
  Offered offered;
  offered.own = std::move(descriptor);
  const uint64_t id = RandomId();
  MutexLock lock(mutex_);
  offered_.emplace(id, std::move(offered));
  return id;
}

void DescriptorSocket::Withdraw(uint64_t id) {
  MutexLock lock(mutex_);
  offered_.erase(id);
}

uint64_t DescriptorSocket::Await(size_t count, std::function<void(std::vector<UniqueFd>)> on_come) {
  const uint64_t id = RandomId();
  MutexLock lock(mutex_);
  awaited_[id] = {.count = count, .on_come = std::move(on_come)};
  return id;
}

void DescriptorSocket::StopAwaiting(uint64_t id) {
  MutexLock lock(mutex_);
  awaited_.erase(id);
}

bool DescriptorSocket::Take(int connection, uint64_t id, std::vector<UniqueFd>& descriptors) {
  std::function<void(std::vector<UniqueFd>)> on_come;
  {
    MutexLock lock(mutex_);
    const auto awaited = awaited_.find(id);
    if (awaited == awaited_.end()) return false;
    if (awaited->second.count == descriptors.size()) {
      on_come = std::move(awaited->second.on_come);
      awaited_.erase(awaited);
    }
  }
  if (on_come) on_come(std::move(descriptors));
  SendAnswer(connection, on_come ? 0 : EINVAL, -1);
  return true;
}

void DescriptorSocket::Answer(int connection, uint64_t id, std::vector<UniqueFd> descriptors) {
  if (id == 0) {
    // Some hundred bytes, which fit into the buffer of a new socket. An error means that the peer has gone.
    const std::string answer = OwnerAnswer(owner_);
    (void)send(connection, answer.data(), answer.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    return;
  }
  if (Take(connection, id, descriptors)) return;
  MutexLock lock(mutex_);
  const auto offered = offered_.find(id);
  if (offered == offered_.end()) return SendAnswer(connection, ENOENT, -1);
  SendAnswer(connection, 0, offered->second.fd());
}

// One thread serves all connections. It never blocks, and closes a silent connection after some seconds.
void DescriptorSocket::Serve() {
  struct Connection {
    UniqueFd fd;
    unsigned char request[8];
    size_t received = 0;
    std::vector<UniqueFd> descriptors;  // received with the request
    absl::Time deadline;
  };
  std::vector<Connection> connections;
  absl::Time accept_from = absl::InfinitePast();
  while (true) {
    absl::Time now = clock_.SteadyNow();
    // A listener is not polled while its connections cannot be accepted, because poll would return at once.
    const bool full = connections.size() >= kMaxConnections;
    const bool accepting = !full && now >= accept_from;
    std::vector<pollfd> polled = {{wake_.get(), POLLIN, 0}, {accepting ? listener_.get() : -1, POLLIN, 0}};
    for (const Connection& connection : connections) polled.push_back({connection.fd.get(), POLLIN, 0});
    int timeout = connections.empty() ? -1 : 1000;
    if (!full && !accepting) timeout = static_cast<int>(absl::ToInt64Milliseconds(kAcceptPause));
    (void)poll(polled.data(), polled.size(), timeout);
    if (polled[0].revents != 0) return;
    now = clock_.SteadyNow();
    std::vector<Connection> kept;
    for (size_t i = 0; i < connections.size(); ++i) {
      Connection& connection = connections[i];
      // What waits is read whatever the time: this thread may have stood still, not the peer.
      bool keep = polled[i + 2].revents != 0 || now < connection.deadline;
      if (polled[i + 2].revents != 0) {
        ReceivedMessage got;
        const std::span<char> rest(reinterpret_cast<char*>(connection.request) + connection.received,
                                   sizeof(connection.request) - connection.received);
        const int error = ReceiveMessage(connection.fd.get(), rest, MSG_DONTWAIT, got);
        connection.received += got.bytes;
        std::move(got.descriptors.begin(), got.descriptors.end(), std::back_inserter(connection.descriptors));
        if (error != 0 ? error != EAGAIN && error != EINTR : got.bytes == 0) keep = false;
        if (got.truncated || connection.descriptors.size() > kMostDescriptors) keep = false;
        if (keep && connection.received == sizeof(connection.request)) {
          Answer(connection.fd.get(), FromLittleEndian(connection.request, 8),
                 std::exchange(connection.descriptors, {}));
          connection.received = 0;  // a connection may send several requests
          connection.deadline = now + absl::Seconds(kTimeoutSeconds);
        }
      }
      if (keep) kept.push_back(std::move(connection));
    }
    connections = std::move(kept);
    if (polled[1].revents == 0) continue;
    const auto welcome = [&](UniqueFd fd) {
      const auto peer = PeerOf(fd.get());
      if (!peer.ok() || !policy_.Check(*peer).ok()) return SendAnswer(fd.get(), EPERM, -1);
      connections.push_back({std::move(fd), {}, 0, {}, now + absl::Seconds(kTimeoutSeconds)});
    };
    const int most = static_cast<int>(kMaxConnections - connections.size());
    if (!acceptor_.TakeWaiting(listener_.get(), welcome, most)) accept_from = now + kAcceptPause;
  }
}

absl::StatusOr<UniqueFd> ReceiveDescriptor(const std::string& path, uint64_t id, uid_t owner) {
  CAIRN_ASSIGN_OR_RETURN(const UniqueFd fd, ConnectTo(path, owner));
  SendRequest(fd.get(), id);
  char byte = 0;
  ReceivedMessage answer;
  if (const int error = ReceiveMessage(fd.get(), {&byte, 1}, 0, answer); error != 0) {
    return Unreachable(path, "receive", error);
  }
  if (answer.bytes == 0) return Unreachable(path, "receive", ECONNRESET);
  if (byte != 0) return Refused(path, static_cast<unsigned char>(byte));
  if (answer.descriptors.empty()) return Unreachable(path, "the answer has no descriptor", EPROTO);
  return std::move(answer.descriptors.front());
}

absl::StatusOr<SocketOwner> AskSocketOwner(const std::string& path, uid_t owner) {
  CAIRN_ASSIGN_OR_RETURN(const UniqueFd fd, ConnectTo(path, owner));
  SendRequest(fd.get(), 0);
  unsigned char answer[kOwnerBytes];
  // A refusal is a single byte.
  const ssize_t first = recv(fd.get(), answer, 1, 0);
  if (first <= 0) return Unreachable(path, "receive", first < 0 ? errno : ECONNRESET);
  if (answer[0] != 0) return Refused(path, answer[0]);
  const auto receive = [&](void* to, size_t bytes) {
    return recv(fd.get(), to, bytes, MSG_WAITALL) == static_cast<ssize_t>(bytes);
  };
  if (!receive(answer + 1, sizeof(answer) - 1)) return Unreachable(path, "the answer is cut off", EPROTO);
  SocketOwner found;
  found.incarnation = FromLittleEndian(answer + 1, 8);
  found.rank = static_cast<uint32_t>(FromLittleEndian(answer + 9, 4));
  const uint64_t length = FromLittleEndian(answer + 13, 4);
  if (length > kMaxJobBytes) return Unreachable(path, "the job's name is too long", EPROTO);
  found.job.resize(length);
  if (length > 0 && !receive(found.job.data(), length)) return Unreachable(path, "the answer is cut off", EPROTO);
  return found;
}

}  // namespace cairn
