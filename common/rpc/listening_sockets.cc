#include "common/rpc/listening_sockets.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/process/log.h"
#include "common/rpc/address.h"
#include "common/rpc/keepalive.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

void SetInt(int socket, int level, int option, int value) { setsockopt(socket, level, option, &value, sizeof(value)); }

// Returns a listening socket. If it is not valid, errno says why.
UniqueFd ListenOn(const sockaddr* address, socklen_t length) {
  UniqueFd listener(socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP));
  if (!listener.valid()) return listener;
  // Lets a restarted process bind its port while old connections linger, but not while another process listens.
  SetInt(listener.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  // Accepted connections inherit the following settings. gRPC's own listener uses the same.
  SetInt(listener.get(), IPPROTO_TCP, TCP_NODELAY, 1);
  SetInt(listener.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, kKeepaliveTimeoutMs);
  if (address->sa_family == AF_INET6) SetInt(listener.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  // The system limits the queue to net.core.somaxconn.
  if (bind(listener.get(), address, length) != 0 || listen(listener.get(), INT_MAX) != 0) {
    const int error = errno;
    listener = UniqueFd();
    errno = error;
  }
  return listener;
}

// Returns the port field of a socket address, in network byte order.
in_port_t* PortIn(sockaddr* address) {
  if (address->sa_family == AF_INET6) return &reinterpret_cast<sockaddr_in6*>(address)->sin6_port;
  return &reinterpret_cast<sockaddr_in*>(address)->sin_port;
}

in_port_t PortOf(int listener) {
  sockaddr_storage address = {};
  socklen_t length = sizeof(address);
  if (getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) != 0) return 0;
  return *PortIn(reinterpret_cast<sockaddr*>(&address));
}

// Returns sockets for all addresses that can be bound, all with the port of the first one. If the result is empty,
// errno says why. Sets `in_use` if another process listens at one of the addresses.
std::vector<UniqueFd> ListenOnAll(const addrinfo* addresses, bool& in_use) {
  std::vector<UniqueFd> listeners;
  for (; addresses != nullptr; addresses = addresses->ai_next) {
    if (!listeners.empty()) *PortIn(addresses->ai_addr) = PortOf(listeners.front().get());
    UniqueFd listener = ListenOn(addresses->ai_addr, addresses->ai_addrlen);
    if (!listener.valid() && errno == EADDRINUSE) in_use = true;
    if (listener.valid()) listeners.push_back(std::move(listener));
  }
  return listeners;
}

absl::Status CannotBind(std::string_view flag, const std::string& address, std::string_view why) {
  return MakeError(
      Reason::kBadRequest, absl::StrCat(std::string(flag), " ", address, " cannot be bound: ", std::string(why)),
      {{"address", address},
       {"next", "Give an address of this machine and a port that nobody listens on; port 0 takes a free one."}});
}

}  // namespace

absl::StatusOr<ListeningSockets> ListenAt(std::string_view flag, const std::string& address) {
  const auto [host, port] = HostAndPort(CanonicalAddress(address));
  addrinfo hints = {};
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int failed = getaddrinfo(host.c_str(), port.c_str(), &hints, &found); failed != 0) {
    return CannotBind(flag, address, gai_strerror(failed));
  }
  const absl::Cleanup free_found = [found] { freeaddrinfo(found); };
  ListeningSockets listening;
  bool in_use = false;
  if (host == "0.0.0.0" || host == "::") {
    sockaddr_in6 everywhere = {};
    everywhere.sin6_family = AF_INET6;
    everywhere.sin6_port = *PortIn(found->ai_addr);
    addrinfo wildcard = {};
    wildcard.ai_addr = reinterpret_cast<sockaddr*>(&everywhere);
    wildcard.ai_addrlen = sizeof(everywhere);
    listening.sockets = ListenOnAll(&wildcard, in_use);
  }
  // A system without IPv6 has the wildcard of IPv4 only.
  if (listening.sockets.empty()) listening.sockets = ListenOnAll(found, in_use);
  if (listening.sockets.empty()) return CannotBind(flag, address, std::strerror(errno));
  if (in_use) {
    Log(LogLevel::kWarn, "port_shared",
        {{"address", address},
         {"next",
          "Another process listens at this port with the other version of IP, so callers may reach that process. "
          "Give another port, or an address of one version of IP."}});
  }
  listening.port = ntohs(PortOf(listening.sockets.front().get()));
  listening.address = JoinHostPort(host, listening.port);
  return listening;
}

}  // namespace cairn
