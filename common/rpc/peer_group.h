// Says with whom a connection shares what strangers may hold (stranger_table.h).
#ifndef CAIRN_COMMON_RPC_PEER_GROUP_H_
#define CAIRN_COMMON_RPC_PEER_GROUP_H_

#include <string>

#include "common/rpc/loopback_user.h"

namespace cairn {

// Not thread-safe.
class PeerGroups {
 public:
  // Returns the group of a connection: its address, of IPv6 the 64 bits that a network is given as a whole. On loopback
  // and on Unix sockets it is one group for the user of this process and root, and one for all other users together.
  std::string Of(int connection);

 private:
  LoopbackUser users_;
};

}  // namespace cairn

#endif  // CAIRN_COMMON_RPC_PEER_GROUP_H_
