// What one end of a TCP connection sees of it: its own address, and the other end's. Where nothing stands between the
// two ends, each sees the other's view turned round.
#ifndef CAIRN_COMMON_RPC_CHANNEL_VIEW_H_
#define CAIRN_COMMON_RPC_CHANNEL_VIEW_H_

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <string>

namespace cairn {

// An IP address (IPv4 as IPv6, ::ffff:a.b.c.d, because one end may see it so) and a port, in the order of the network.
// All zero if there is none.
using EndAddress = std::array<char, 18>;

// EndAddress{} for an address that is neither IPv4 nor IPv6.
EndAddress EndAddressOf(const sockaddr* address);

struct ChannelView {
  EndAddress own{};
  EndAddress peer{};

  // What is sent: own, then peer.
  static constexpr size_t kBytes = 2 * std::tuple_size_v<EndAddress>;
  std::string Bytes() const;
  // What the other end sees if nothing stands between.
  ChannelView TurnedRound() const { return {peer, own}; }

  // Returns what this end of a connected socket sees; zeros where the connection is gone.
  static ChannelView OfSocket(int socket);

  bool operator==(const ChannelView&) const = default;
};

// Returns whether a process of this machine may listen at the address: it is loopback's, or that of an interface of
// this machine that is up. (The addresses of Kubernetes' Services may stand on an interface that is down, kube-ipvs0;
// what is sent to them leaves the machine.) True if the system does not say.
bool IsOfThisMachine(const EndAddress& address);

}  // namespace cairn

#endif  // CAIRN_COMMON_RPC_CHANNEL_VIEW_H_
