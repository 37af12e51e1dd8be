#include "common/rpc/peer_dial.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/clock.h"
#include "common/rpc/address.h"
#include "common/rpc/channel_view.h"
#include "common/rpc/keepalive.h"
#include "common/rpc/peer_proof.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

using Fault = ClientProof::Fault;

// If an address has not answered after this time, the name's next one is tried too (RFC 8305, "connection attempt
// delay").
constexpr absl::Duration kStagger = absl::Milliseconds(250);

constexpr char kSilent[] = "does not answer: it is stopped, frozen or very busy, or the network does not lead there";

// Says in words why connect(2) failed.
std::string ConnectText(int error) {
  switch (error) {
    case ECONNREFUSED:
      return "is not there: nothing listens at that address";
    case EMFILE:
    case ENFILE:
      return "cannot be reached: the caller has no file descriptor left (ulimit -n)";
    case EHOSTUNREACH:
    case ENETUNREACH:
    case EADDRNOTAVAIL:
      return "cannot be reached: the network does not lead there";
    case ETIMEDOUT:
      return kSilent;
    default:
      return absl::StrCat("cannot be reached: ", std::strerror(error));
  }
}

constexpr char kCloses[] =
    "closes each new connection at once: it has no file descriptor left (its log says so), or it ends";

// Says what is wrong with a server that answers. It may be another server than the caller means.
std::string FaultText(Fault fault) {
  switch (fault) {
    case Fault::kInsecure:
      return "asks for no token: it was started with --insecure";
    case Fault::kOtherVersion:
      return "proves itself in another way: it is of another version";
    case Fault::kOtherToken:
      return "does not prove that it knows the token: it has another one, or is something else";
    case Fault::kRelayed:
      return "is reached through another process of this machine, which could read and change everything";
    case Fault::kRefused:
      return "refuses the proof of the token";
    default:
      return "does not prove that it knows the token: it is something else, or of another version";
  }
}

std::string FaultNext(Fault fault) {
  switch (fault) {
    case Fault::kInsecure:
      return "If that is intended, use --insecure here too; else start it without --insecure.";
    case Fault::kOtherVersion:
      return "Use the same version of Cairn everywhere.";
    case Fault::kRelayed:
      return "Give the address at which the server itself listens.";
    default:
      return "Check the address, and give all parts the same --token-file, or run as the coordinator's user "
             "(<root>/.cairn/token is its token). If somebody else listens there, end that process or take another "
             "port.";
  }
}

// One address that is tried.
class Try {
 public:
  Try(const PeerDial& peer, const sockaddr* address, socklen_t length) : peer_(peer), text_(TextOf(address, length)) {
    socket_ = UniqueFd(socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP));
    if (!socket_.valid()) {
      Fail(ConnectText(errno), std::strerror(errno));
      return;
    }
    const int on = 1, patience_ms = kKeepaliveTimeoutMs;
    setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(socket_.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &patience_ms, sizeof(patience_ms));
    if (connect(socket_.get(), address, length) != 0 && errno != EINPROGRESS) {
      Fail(ConnectText(errno), std::strerror(errno));
    }
  }

  // Returns the events that poll waits for.
  pollfd polled() const {
    const bool writes = !connected_ || !to_send_.empty();
    return {failed_ ? -1 : socket_.get(), static_cast<short>(writes ? POLLOUT : POLLIN), 0};
  }

  // Continues as far as possible without blocking. Returns whether the connection is ready.
  bool Advance() {
    if (!connected_ && !Connected()) return false;
    while (!failed_ && !ready_) {
      if (!to_send_.empty()) {
        const ssize_t sent = send(socket_.get(), to_send_.data(), to_send_.size(), MSG_NOSIGNAL);
        if (sent < 0 && (errno == EAGAIN || errno == EINTR)) return false;
        if (sent < 0) Fail(kCloses, std::strerror(errno));
        if (sent > 0) to_send_.erase(0, static_cast<size_t>(sent));
        continue;
      }
      char bytes[ServerProof::kAnswerBytes];
      const ssize_t came = recv(socket_.get(), bytes, std::min(sizeof(bytes), wanted_), 0);
      if (came < 0 && (errno == EAGAIN || errno == EINTR)) return false;
      if (came <= 0) {
        Fail(kCloses, came == 0 ? "Socket closed" : std::strerror(errno));
      } else {
        Take(proof_->Take({bytes, static_cast<size_t>(came)}));
      }
    }
    return ready_;
  }

  bool failed() const { return failed_; }
  Fault fault() const { return fault_; }
  // "[::1]:7420: Connection refused", for people who look closer.
  std::string detail() const { return absl::StrCat(text_, ": ", detail_); }
  const std::string& what() const { return what_; }
  UniqueFd TakeSocket() { return std::move(socket_); }

 private:
  static std::string TextOf(const sockaddr* address, socklen_t length) {
    char host[NI_MAXHOST] = "?", port[NI_MAXSERV] = "?";
    getnameinfo(address, length, host, sizeof(host), port, sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV);
    return address->sa_family == AF_INET6 ? absl::StrCat("[", host, "]:", port) : absl::StrCat(host, ":", port);
  }

  bool Connected() {
    int error = 0;
    socklen_t length = sizeof(error);
    if (getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
    if (error == 0) {
      sockaddr_storage peer = {};
      length = sizeof(peer);
      if (getpeername(socket_.get(), reinterpret_cast<sockaddr*>(&peer), &length) != 0) {
        if (errno == ENOTCONN) return false;  // not yet
        error = errno;
      }
    }
    if (error != 0) {
      Fail(ConnectText(error), std::strerror(error));
      return false;
    }
    connected_ = true;
    const ChannelView view = ChannelView::OfSocket(socket_.get());
    if (view.own == view.peer) {
      // If nothing listens at a local port, the system may give it to the calling socket, which connects to itself.
      Fail(ConnectText(ECONNREFUSED), "the socket connected to itself");
      return false;
    }
    if (peer_.keys != nullptr) {
      proof_.emplace(peer_.keys, view, IsOfThisMachine(view.peer));
      Take(proof_->Begin());
    } else if (peer_.plain) {
      ready_ = true;
    } else {
      fault_ = Fault::kOtherToken;
      Fail("answers, but no token was found by which it could prove itself", "no token");
    }
    return true;
  }

  void Take(ProofStep step) {
    to_send_ += step.send;
    wanted_ = step.wanted;
    if (step.state == ProofStep::kProven) ready_ = true;
    if (step.state != ProofStep::kRefused) return;
    fault_ = proof_->fault();
    Fail(FaultText(fault_), "no proof");
  }

  void Fail(std::string what, std::string detail) {
    failed_ = true;
    what_ = std::move(what);
    detail_ = std::move(detail);
    socket_ = UniqueFd();
  }

  const PeerDial& peer_;
  const std::string text_;
  UniqueFd socket_;
  bool connected_ = false;
  bool ready_ = false;
  bool failed_ = false;
  std::optional<ClientProof> proof_;
  std::string to_send_;
  size_t wanted_ = 0;
  Fault fault_ = Fault::kNone;
  std::string what_ = kSilent;
  std::string detail_ = "no answer in time";
};

// Returns the error after all tries have failed.
absl::Status NoneReady(const PeerDial& peer, const std::vector<std::unique_ptr<Try>>& tries) {
  std::vector<std::string> details;
  const Try* telling = tries.front().get();
  // The error comes from the most informative try. A Cairn server that refuses is more informative than an address
  // where nothing listens, which many names have. A server that is not Cairn's is less informative than a silent
  // address, because a stranger may have taken the address.
  const auto weight = [&](const Try& each) {
    if (each.fault() == Fault::kNoProof) return tries.size() > 1 ? 1 : 3;
    if (each.fault() != Fault::kNone) return 3;
    return each.failed() ? 2 : 4;
  };
  for (const auto& each : tries) {
    details.push_back(each->detail());
    if (weight(*each) > weight(*telling)) telling = each.get();
  }
  const std::string detail = absl::StrJoin(details, "; ");
  if (telling->fault() == Fault::kNone) return Unreachable(peer.role, peer.name, telling->what(), detail);
  const bool coordinator = peer.role == ServerRole::kCoordinator;
  return MakeError(Reason::kBadToken,
                   absl::StrCat("what listens at the address of ", coordinator ? "coordinator " : "the agent ",
                                peer.name, " ", telling->what()),
                   {{"address", peer.address}, {"detail", detail}, {"next", FaultNext(telling->fault())}});
}

}  // namespace

absl::Status Unreachable(ServerRole role, std::string_view name, std::string_view what, std::string_view detail) {
  const bool coordinator = role == ServerRole::kCoordinator;
  return MakeError(coordinator ? Reason::kCoordinatorUnreachable : Reason::kAgentUnreachable,
                   absl::StrCat(coordinator ? "coordinator " : "agent ", std::string(name), " ", std::string(what)),
                   {{"address", std::string(name)}, {"detail", std::string(detail)}});
}

absl::StatusOr<UniqueFd> DialPeer(const PeerDial& peer, absl::Duration timeout, int cancelled) {
  const Clock& clock = Clock::Real();
  const absl::Time deadline = clock.SteadyNow() + timeout;
  const auto [host, port] = HostAndPort(peer.address);
  addrinfo hints = {};
  hints.ai_flags = AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int failed = getaddrinfo(host.c_str(), port.c_str(), &hints, &found); failed != 0) {
    return Unreachable(peer.role, peer.name, "cannot be found: its name has no address", gai_strerror(failed));
  }
  const absl::Cleanup free_found = [found] { freeaddrinfo(found); };

  std::vector<std::unique_ptr<Try>> tries;
  const addrinfo* next = found;
  absl::Time next_at = clock.SteadyNow();
  while (true) {
    absl::Time now = clock.SteadyNow();
    const bool all_failed = std::all_of(tries.begin(), tries.end(), [](const auto& each) { return each->failed(); });
    if (next != nullptr && (all_failed || now >= next_at)) {
      tries.push_back(std::make_unique<Try>(peer, next->ai_addr, next->ai_addrlen));
      next = next->ai_next;
      next_at = now + kStagger;
      continue;
    }
    if (all_failed || now >= deadline) return NoneReady(peer, tries);
    std::vector<pollfd> polled = {{cancelled, POLLIN, 0}};
    for (const auto& each : tries) polled.push_back(each->polled());
    const absl::Duration wait = std::min(deadline, next == nullptr ? deadline : next_at) - now;
    poll(polled.data(), polled.size(),
         static_cast<int>(absl::ToInt64Milliseconds(absl::Ceil(wait, absl::Milliseconds(1)))));
    if (polled[0].revents != 0) {
      return MakeError(Reason::kInterrupted, absl::StrCat("the connection to ", peer.name, " is not wanted any more"));
    }
    for (size_t i = 0; i < tries.size(); ++i) {
      if (polled[i + 1].revents != 0 && tries[i]->Advance()) return tries[i]->TakeSocket();
    }
  }
}

}  // namespace cairn
