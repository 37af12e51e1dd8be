// Parses addresses of services as people write them: "host:port", "[::1]:7420", also with gRPC's prefix "dns:".
#ifndef CAIRN_COMMON_RPC_ADDRESS_H_
#define CAIRN_COMMON_RPC_ADDRESS_H_

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cairn {

// Returns the canonical spellings of the addresses that an address may mean: "127.0.0.1:7420", "[::1]:7420".
// "localhost" means two addresses. Another host's name stays a name, in lower case.
std::vector<std::string> CanonicalAddresses(std::string_view address);

// Returns the address with its host in canonical spelling: without a prefix of gRPC, a name in lower case, brackets
// only around an IPv6 address. Brackets around another host are accepted, so that a manifest may put them around an
// address whose version it does not know: "[10.0.0.1]:7421" gives "10.0.0.1:7421".
std::string CanonicalAddress(std::string_view address);

// Returns "host:port"; a host that is an IPv6 address gets brackets, unless it has them.
std::string JoinHostPort(std::string_view host, int port);

// Returns the host and the port. The host is in lower case, without brackets and without gRPC's prefix. The port is
// empty if there is none.
std::pair<std::string, std::string> HostAndPort(std::string_view address);

// Returns whether the address has a host and a port (0 to 65535). The host is a name, an IPv4 address, or an IPv6
// address in brackets that is not link-local. gRPC's prefixes "dns:", "ipv4:" and "ipv6:" are allowed. Looks up no
// name.
bool IsHostPort(std::string_view address);

// Returns a function that says why a value is no host and port, for Argument::Fits. `example` is an address that fits.
std::function<std::string(const std::string&)> HostPortLike(std::string example);

// Returns whether only this machine can reach the address: 127.0.0.0/8, ::1, or localhost. Looks up no name.
bool IsLoopback(std::string_view address);

}  // namespace cairn

#endif  // CAIRN_COMMON_RPC_ADDRESS_H_
