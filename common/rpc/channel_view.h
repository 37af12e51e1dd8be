// The two addresses of a TCP connection as one end sees them: its own address and the peer's. If nothing between the
// two ends rewrites addresses, each end sees the same two addresses in the opposite order.
#ifndef CAIRN_COMMON_RPC_CHANNEL_VIEW_H_
#define CAIRN_COMMON_RPC_CHANNEL_VIEW_H_

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <string>

namespace cairn {

// An IP address and a port, in network byte order; all zero if there is none. An IPv4 address is stored as IPv6
// (::ffff:a.b.c.d), because one of the ends may see it in that form.
using EndAddress = std::array<char, 18>;

// Returns EndAddress{} for an address that is neither IPv4 nor IPv6.
EndAddress EndAddressOf(const sockaddr* address);

struct ChannelView {
  EndAddress own{};
  EndAddress peer{};

  // The form on the wire: own, then peer.
  static constexpr size_t kBytes = 2 * std::tuple_size_v<EndAddress>;
  std::string Bytes() const;
  // Returns what the other end sees if nothing rewrites addresses.
  ChannelView TurnedRound() const { return {peer, own}; }

  // Returns the view of a connected socket; zeros if the connection is closed.
  static ChannelView OfSocket(int socket);

  bool operator==(const ChannelView&) const = default;
};

// Returns whether a process of this machine can listen at the address: it is a loopback address, or that of an
// interface of this machine that is up. True if the system does not tell. (The addresses of Kubernetes Services may
// belong to the interface kube-ipvs0, which is down; packets to them leave the machine.)
bool IsOfThisMachine(const EndAddress& address);

}  // namespace cairn

#endif  // CAIRN_COMMON_RPC_CHANNEL_VIEW_H_
