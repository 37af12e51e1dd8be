#include "common/rpc/peer_group.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <optional>

namespace cairn {
namespace {

constexpr char kOwnUser[] = "own user";
constexpr char kOtherUsers[] = "other users";

std::optional<uid_t> UserOfUnixSocket(int connection) {
  ucred user = {};
  socklen_t length = sizeof(user);
  if (getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &user, &length) != 0) return std::nullopt;
  return user.uid;
}

}  // namespace

std::string PeerGroups::Of(int connection) {
  sockaddr_storage peer = {};
  socklen_t length = sizeof(peer);
  getpeername(connection, reinterpret_cast<sockaddr*>(&peer), &length);
  std::optional<uid_t> user;
  if (peer.ss_family == AF_INET) {
    const in_addr& host = reinterpret_cast<const sockaddr_in&>(peer).sin_addr;
    if (ntohl(host.s_addr) >> 24 != IN_LOOPBACKNET) return {reinterpret_cast<const char*>(&host), sizeof(host)};
    user = users_.At(connection);
  } else if (peer.ss_family == AF_INET6) {
    const in6_addr& host = reinterpret_cast<const sockaddr_in6&>(peer).sin6_addr;
    const bool mapped = IN6_IS_ADDR_V4MAPPED(&host);
    if (!IN6_IS_ADDR_LOOPBACK(&host) && !(mapped && host.s6_addr[12] == IN_LOOPBACKNET)) {
      const auto* bytes = reinterpret_cast<const char*>(host.s6_addr);
      return mapped ? std::string(bytes + 12, 4) : std::string(bytes, 8);
    }
    user = users_.At(connection);
  } else {
    user = UserOfUnixSocket(connection);
  }
  return user && (*user == geteuid() || *user == 0) ? kOwnUser : kOtherUsers;
}

}  // namespace cairn
