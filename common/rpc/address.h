// Addresses of services as people write them: "host:port", "[::1]:7420", also with gRPC's "dns:" before them.
#ifndef CAIRN_COMMON_RPC_ADDRESS_H_
#define CAIRN_COMMON_RPC_ADDRESS_H_

#include <string>
#include <string_view>
#include <vector>

namespace cairn {

// The sockets that an address may mean, each spelled in one way: "127.0.0.1:7420"; "[::1]:7420". "localhost" is two.
// A name of another host stays a name, in lower case.
std::vector<std::string> CanonicalAddresses(std::string_view address);

// Whether it says both a host and a port (0 to 65535), as a person should write it: a host name or an IPv4 address, or
// an IPv6 address in brackets; gRPC's "dns:", "ipv4:" and "ipv6:" may stand before it. Nothing is looked up.
bool IsHostPort(std::string_view address);

// Whether nobody on another machine can reach it: 127.0.0.0/8, ::1, or localhost. Names are not looked up.
bool IsLoopback(std::string_view address);

}  // namespace cairn

#endif  // CAIRN_COMMON_RPC_ADDRESS_H_
