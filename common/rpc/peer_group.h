// Names the group of a connection. Groups share the places for strangers fairly (stranger_table.h).
#ifndef CAIRN_COMMON_RPC_PEER_GROUP_H_
#define CAIRN_COMMON_RPC_PEER_GROUP_H_

#include <string>

#include "common/rpc/loopback_user.h"

namespace cairn {

// Not thread-safe.
class PeerGroups {
 public:
  // Returns the group of a connection: the peer's IPv4 address, or the first 64 bits of its IPv6 address, which
  // identify a network. On loopback and on Unix sockets there are two groups: one for root and the user of this
  // process, and one for all other users.
  std::string Of(int connection);

 private:
  LoopbackUser users_;
};

}  // namespace cairn

#endif  // CAIRN_COMMON_RPC_PEER_GROUP_H_
