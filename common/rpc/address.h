// Reads addresses of services as people write them: "host:port", "[::1]:7420", also with gRPC's "dns:" before them.
#ifndef CAIRN_COMMON_RPC_ADDRESS_H_
#define CAIRN_COMMON_RPC_ADDRESS_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cairn {

// Returns the sockets that an address may mean, each in its one spelling: "127.0.0.1:7420", "[::1]:7420". "localhost"
// means two. The name of another host stays a name, in lower case.
std::vector<std::string> CanonicalAddresses(std::string_view address);

// Returns the host in lower case, without brackets and without what gRPC may have before it, and the port, which is
// empty if there is none.
std::pair<std::string, std::string> HostAndPort(std::string_view address);

// Returns whether the address has both a host and a port (0 to 65535), as a person should write it: a host name, an
// IPv4 address, or an IPv6 address in brackets, perhaps behind gRPC's "dns:", "ipv4:" or "ipv6:". It looks up no name.
bool IsHostPort(std::string_view address);

// Returns whether nobody on another machine can reach the address: 127.0.0.0/8, ::1, or localhost. It looks up no name.
bool IsLoopback(std::string_view address);

}  // namespace cairn

#endif  // CAIRN_COMMON_RPC_ADDRESS_H_
