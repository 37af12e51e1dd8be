#include "common/rpc/channel_view.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>

#include "absl/cleanup/cleanup.h"

namespace cairn {
namespace {

constexpr size_t kIpBytes = 16;
constexpr char kMapped[] = "\0\0\0\0\0\0\0\0\0\0\xff\xff";
constexpr size_t kMappedBytes = sizeof(kMapped) - 1;

bool IsLoopbackIp(const EndAddress& address) {
  if (std::memcmp(address.data(), kMapped, kMappedBytes) == 0) return address[kMappedBytes] == 127;
  return std::memcmp(address.data(), &in6addr_loopback, kIpBytes) == 0;
}

}  // namespace

EndAddress EndAddressOf(const sockaddr* address) {
  EndAddress end{};
  if (address->sa_family == AF_INET) {
    const auto* four = reinterpret_cast<const sockaddr_in*>(address);
    std::memcpy(end.data(), kMapped, kMappedBytes);
    std::memcpy(end.data() + kMappedBytes, &four->sin_addr, sizeof(four->sin_addr));
    std::memcpy(end.data() + kIpBytes, &four->sin_port, sizeof(four->sin_port));
  } else if (address->sa_family == AF_INET6) {
    const auto* six = reinterpret_cast<const sockaddr_in6*>(address);
    std::memcpy(end.data(), &six->sin6_addr, kIpBytes);
    std::memcpy(end.data() + kIpBytes, &six->sin6_port, sizeof(six->sin6_port));
  }
  return end;
}

std::string ChannelView::Bytes() const { return std::string(own.data(), own.size()).append(peer.data(), peer.size()); }

ChannelView ChannelView::OfSocket(int socket) {
  const auto end = [&](auto get) {
    sockaddr_storage address = {};
    socklen_t length = sizeof(address);
    auto* raw = reinterpret_cast<sockaddr*>(&address);
    return get(socket, raw, &length) == 0 ? EndAddressOf(raw) : EndAddress{};
  };
  return {.own = end(getsockname), .peer = end(getpeername)};
}

bool IsOfThisMachine(const EndAddress& address) {
  if (IsLoopbackIp(address)) return true;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return true;
  const absl::Cleanup free_all = [all] { freeifaddrs(all); };
  for (const ifaddrs* each = all; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || (each->ifa_flags & IFF_UP) == 0) continue;
    const EndAddress mine = EndAddressOf(each->ifa_addr);
    if (mine != EndAddress{} && std::equal(mine.begin(), mine.begin() + kIpBytes, address.begin())) return true;
  }
  return false;
}

}  // namespace cairn
