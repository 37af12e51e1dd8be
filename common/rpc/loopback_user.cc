#include "common/rpc/loopback_user.h"

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <cstring>

namespace cairn {
namespace {

// One end of a connection, in the form of the kernel's table.
struct End {
  uint8_t family = AF_UNSPEC;
  uint16_t port = 0;                  // in network byte order
  std::array<uint32_t, 4> host = {};  // the same
};

End EndOf(const sockaddr_storage& address) {
  End end;
  if (address.ss_family == AF_INET) {
    const auto& in = reinterpret_cast<const sockaddr_in&>(address);
    end.family = AF_INET;
    end.port = in.sin_port;
    end.host[0] = in.sin_addr.s_addr;
  } else if (address.ss_family == AF_INET6) {
    const auto& in = reinterpret_cast<const sockaddr_in6&>(address);
    end.port = in.sin6_port;
    // A listener for IPv4 and IPv6 sees an IPv4 peer under an IPv4-mapped address. The table has the IPv4 address.
    if (IN6_IS_ADDR_V4MAPPED(&in.sin6_addr)) {
      end.family = AF_INET;
      std::memcpy(end.host.data(), &in.sin6_addr.s6_addr[12], 4);
    } else {
      end.family = AF_INET6;
      std::memcpy(end.host.data(), &in.sin6_addr, sizeof(end.host));
    }
  }
  return end;
}

struct Question {
  nlmsghdr header;
  inet_diag_req_v2 body;
};

}  // namespace

LoopbackUser::LoopbackUser()
    : kernel_(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_SOCK_DIAG)) {}

std::optional<uid_t> LoopbackUser::At(int connection) {
  sockaddr_storage own = {}, peer = {};
  socklen_t own_length = sizeof(own), peer_length = sizeof(peer);
  if (!kernel_.valid() || getsockname(connection, reinterpret_cast<sockaddr*>(&own), &own_length) != 0 ||
      getpeername(connection, reinterpret_cast<sockaddr*>(&peer), &peer_length) != 0) {
    return std::nullopt;
  }
  const End from = EndOf(peer), to = EndOf(own);
  if (from.family == AF_UNSPEC || from.family != to.family) return std::nullopt;
  Question question = {};
  question.header.nlmsg_len = sizeof(question);
  question.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  question.header.nlmsg_flags = NLM_F_REQUEST;
  question.body.sdiag_family = from.family;
  question.body.sdiag_protocol = IPPROTO_TCP;
  question.body.idiag_states = ~0U;
  question.body.id.idiag_sport = from.port;
  question.body.id.idiag_dport = to.port;
  std::memcpy(question.body.id.idiag_src, from.host.data(), sizeof(from.host));
  std::memcpy(question.body.id.idiag_dst, to.host.data(), sizeof(to.host));
  question.body.id.idiag_cookie[0] = INET_DIAG_NOCOOKIE;
  question.body.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  if (send(kernel_.get(), &question, sizeof(question), 0) != sizeof(question)) return std::nullopt;
  // The kernel has written its answer when send() returns.
  alignas(nlmsghdr) std::array<char, 4096> answer = {};
  const ssize_t length = recv(kernel_.get(), answer.data(), answer.size(), 0);
  const auto& header = *reinterpret_cast<const nlmsghdr*>(answer.data());
  if (length < static_cast<ssize_t>(NLMSG_LENGTH(sizeof(inet_diag_msg))) || header.nlmsg_type != SOCK_DIAG_BY_FAMILY) {
    return std::nullopt;
  }
  inet_diag_msg found = {};
  std::memcpy(&found, NLMSG_DATA(&header), sizeof(found));
  // The kernel reports root as the user of a socket that is already closed.
  if (found.idiag_state != TCP_ESTABLISHED) return std::nullopt;
  return found.idiag_uid;
}

}  // namespace cairn
