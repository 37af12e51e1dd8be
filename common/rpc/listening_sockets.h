// Listening TCP sockets of an address as people write it.
#ifndef CAIRN_COMMON_RPC_LISTENING_SOCKETS_H_
#define CAIRN_COMMON_RPC_LISTENING_SOCKETS_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/file/unique_fd.h"

namespace cairn {

struct ListeningSockets {
  std::vector<UniqueFd> sockets;  // they do not block, and connections wait in them
  std::string address;            // "host:port" with the port that was bound, which all of them have
  int port = 0;
};

// Listens at "host:port"; port 0 takes a free one. If a name has several addresses, all of them get the same port.
// Addresses that cannot be bound are omitted if at least one can be bound; the log says so if another process listens
// there (port_shared). The wildcards "0.0.0.0" and "[::]" both mean all addresses of IPv4 and IPv6, as in gRPC.
// `flag` gave the address. INVALID_ARGUMENT (BAD_REQUEST): no address can be bound; the message names flag and address.
absl::StatusOr<ListeningSockets> ListenAt(std::string_view flag, const std::string& address);

}  // namespace cairn

#endif  // CAIRN_COMMON_RPC_LISTENING_SOCKETS_H_
