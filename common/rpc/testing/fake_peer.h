// A fake server that works on raw bytes: a server that proves itself, a stranger, a relay.
#ifndef CAIRN_COMMON_RPC_TESTING_FAKE_PEER_H_
#define CAIRN_COMMON_RPC_TESTING_FAKE_PEER_H_

#include <netinet/in.h>
#include <sys/socket.h>

#include <functional>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"
#include "common/file/unique_fd.h"
#include "common/rpc/peer_proof.h"

namespace cairn::testing {

class FakePeer {
 public:
  // Called for each connection on a thread of its own. The connection blocks, and is closed afterwards.
  using Behaviour = std::function<void(FakePeer&, int connection)>;

  // Listens on 127.0.0.1 or [::1], at `port`, or at a free port if it is 0. ok() is false if that fails.
  explicit FakePeer(Behaviour behaviour, int family = AF_INET, uint16_t port = 0)
      : behaviour_(std::move(behaviour)), family_(family), listener_(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_storage address = {};
    socklen_t length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    address.ss_family = static_cast<sa_family_t>(family);
    auto* four = reinterpret_cast<sockaddr_in*>(&address);
    auto* six = reinterpret_cast<sockaddr_in6*>(&address);
    if (family == AF_INET) {
      four->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      four->sin_port = htons(port);
    } else {
      six->sin6_addr = in6addr_loopback;
      six->sin6_port = htons(port);
    }
    auto* raw = reinterpret_cast<sockaddr*>(&address);
    const int on = 1;
    if (!listener_.valid() || setsockopt(listener_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
        bind(listener_.get(), raw, length) != 0 || listen(listener_.get(), 64) != 0 ||
        getsockname(listener_.get(), raw, &length) != 0) {
      return;
    }
    port_ = ntohs(family == AF_INET ? four->sin_port : six->sin6_port);
    accepting_ = std::thread([this] { Accept(); });
  }
  ~FakePeer() {
    if (listener_.valid()) shutdown(listener_.get(), SHUT_RDWR);
    if (accepting_.joinable()) accepting_.join();
    {
      MutexLock lock(mutex_);
      for (const Connection& each : connections_) shutdown(each.socket.get(), SHUT_RDWR);
    }
    for (Connection& each : connections_) each.thread.join();
  }

  bool ok() const { return port_ != 0; }
  uint16_t port() const { return port_; }
  std::string address() const { return absl::StrCat(family_ == AF_INET ? "127.0.0.1:" : "[::1]:", port_); }
  // Returns all bytes that Receive has read so far.
  std::string heard() {
    MutexLock lock(mutex_);
    return heard_;
  }
  int connections() {
    MutexLock lock(mutex_);
    return static_cast<int>(connections_.size());
  }

  // Reads `bytes` bytes; fewer if the connection ends first.
  std::string Receive(int connection, size_t bytes) {
    std::string received(bytes, '\0');
    size_t size = 0;
    while (size < bytes) {
      const ssize_t came = recv(connection, received.data() + size, bytes - size, 0);
      if (came <= 0) break;
      size += static_cast<size_t>(came);
    }
    received.resize(size);
    MutexLock lock(mutex_);
    heard_ += received;
    return received;
  }
  static void Send(int connection, const std::string& bytes) {
    (void)!send(connection, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  // Proves itself as a server does. Returns whether the caller has proven itself too.
  bool Prove(int connection, const std::shared_ptr<const PeerKeys>& keys) {
    ServerProof proof(keys, ChannelView::OfSocket(connection));
    size_t wanted = ServerProof::kHelloBytes;
    while (true) {
      const std::string bytes = Receive(connection, wanted);
      if (bytes.size() < wanted) return false;
      const ProofStep step = proof.Take(bytes);
      Send(connection, step.send);
      if (step.state != ProofStep::kMore) return step.state == ProofStep::kProven;
      wanted = step.wanted;
    }
  }

 private:
  struct Connection {
    UniqueFd socket;
    std::thread thread;
  };

  void Accept() {
    while (true) {
      UniqueFd taken(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!taken.valid()) return;
      MutexLock lock(mutex_);
      Connection& connection = connections_.emplace_back();
      connection.socket = std::move(taken);
      connection.thread = std::thread([this, socket = connection.socket.get()] {
        behaviour_(*this, socket);
        shutdown(socket, SHUT_RDWR);
      });
    }
  }

  const Behaviour behaviour_;
  const int family_;
  const UniqueFd listener_;
  uint16_t port_ = 0;
  Mutex mutex_;
  std::list<Connection> connections_;
  std::string heard_ ABSL_GUARDED_BY(mutex_);
  std::thread accepting_;
};

}  // namespace cairn::testing

#endif  // CAIRN_COMMON_RPC_TESTING_FAKE_PEER_H_
