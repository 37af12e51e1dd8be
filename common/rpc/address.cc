#include "common/rpc/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace cairn {
namespace {

// Returns a numeric host in its canonical spelling, or an empty string for a name.
std::string NumericHost(const std::string& host) {
  char text[INET6_ADDRSTRLEN] = {};
  in_addr four;
  in6_addr six;
  if (inet_pton(AF_INET, host.c_str(), &four) == 1) {
    inet_ntop(AF_INET, &four, text, sizeof(text));
  } else if (inet_pton(AF_INET6, host.c_str(), &six) == 1) {
    if (IN6_IS_ADDR_V4MAPPED(&six)) {
      inet_ntop(AF_INET, six.s6_addr + 12, text, sizeof(text));
    } else {
      inet_ntop(AF_INET6, &six, text, sizeof(text));
    }
  }
  return text;
}

// Returns the host in lower case without brackets, and ":port" (empty without a port).
std::pair<std::string, std::string> Split(std::string_view address) {
  for (const std::string_view scheme : {"dns:///", "dns:", "ipv4:", "ipv6:"}) {
    if (address.starts_with(scheme)) {
      address.remove_prefix(scheme.size());
      break;
    }
  }
  const size_t colon = address.rfind(':');
  const bool has_port = colon != std::string_view::npos && address.find(']', colon) == std::string_view::npos;
  std::string host(address.substr(0, has_port ? colon : std::string_view::npos));
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  absl::AsciiStrToLower(&host);
  return {std::move(host), has_port ? std::string(address.substr(colon)) : std::string()};
}

// Returns whether the host means another machine on each network link, with a zone ("fe80::1%eth0") or without one.
bool IsOfOneLink(const std::string& host) {
  in6_addr six;
  const std::string address = host.substr(0, host.find('%'));
  return inet_pton(AF_INET6, address.c_str(), &six) == 1 && (address != host || IN6_IS_ADDR_LINKLOCAL(&six));
}

std::string Join(const std::string& host, const std::string& port) {
  in6_addr six;
  return inet_pton(AF_INET6, host.c_str(), &six) == 1 ? absl::StrCat("[", host, "]", port) : absl::StrCat(host, port);
}

}  // namespace

std::vector<std::string> CanonicalAddresses(std::string_view address) {
  const auto [host, port] = Split(address);
  if (host == "localhost") return {Join("127.0.0.1", port), Join("::1", port)};
  return {CanonicalAddress(address)};
}

std::string CanonicalAddress(std::string_view address) {
  const auto [host, port] = Split(address);
  const std::string numeric = NumericHost(host);
  return Join(numeric.empty() ? host : numeric, port);
}

std::string JoinHostPort(std::string_view host, int port) {
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return Join(std::string(host), absl::StrCat(":", port));
}

std::pair<std::string, std::string> HostAndPort(std::string_view address) {
  auto [host, port] = Split(address);
  if (!port.empty()) port.erase(0, 1);
  return {std::move(host), std::move(port)};
}

bool IsHostPort(std::string_view address) {
  const auto [host, port] = Split(address);
  int number = -1;
  const bool digits =
      port.size() > 1 && port.size() <= 6 && std::all_of(port.begin() + 1, port.end(), absl::ascii_isdigit);
  if (!digits || !absl::SimpleAtoi(port.substr(1), &number) || number > 65535) return false;
  if (host.find(':') != std::string::npos)
    return address.find('[') != std::string_view::npos && !NumericHost(host).empty() && !IsOfOneLink(host);
  return !host.empty() && std::all_of(host.begin(), host.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '.' || c == '-' || c == '_';
  });
}

std::function<std::string(const std::string&)> HostPortLike(std::string example) {
  return [example = std::move(example)](const std::string& value) {
    if (IsHostPort(value)) return std::string();
    if (IsOfOneLink(Split(value).first)) {
      return std::string(
          "is a link-local IPv6 address, which leads elsewhere on each machine: give a name, or an address that all "
          "machines of the job reach");
    }
    return absl::StrCat("is not host:port, for example ", example);
  };
}

bool IsLoopback(std::string_view address) {
  const std::string host = Split(address).first;
  if (host == "localhost") return true;
  const std::string numeric = NumericHost(host);
  return numeric == "::1" || numeric.starts_with("127.");
}

}  // namespace cairn
