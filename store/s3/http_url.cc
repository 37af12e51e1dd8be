#include "store/s3/http_url.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace cairn {
namespace {

bool IsName(std::string_view host) {
  return !host.empty() && std::all_of(host.begin(), host.end(), [](char c) {
    return absl::ascii_isalnum(c) || c == '.' || c == '-' || c == '_';
  });
}

bool IsAddressOfVersion6(std::string_view host) {
  return host.find(':') != host.npos &&
         std::all_of(host.begin(), host.end(), [](char c) { return absl::ascii_isxdigit(c) || c == ':' || c == '.'; });
}

}  // namespace

std::string HttpServer::HostHeader() const {
  const std::string name = IsAddressOfVersion6(host) ? absl::StrCat("[", host, "]") : host;
  return port == (tls ? 443 : 80) ? name : absl::StrCat(name, ":", port);
}

bool HttpServer::IsOnThisMachine() const {
  const bool address = std::all_of(host.begin(), host.end(), [](char c) { return absl::ascii_isdigit(c) || c == '.'; });
  return host == "localhost" || host == "::1" || (address && host.starts_with("127."));
}

std::optional<HttpUrl> ParseHttpUrl(std::string_view text) {
  absl::string_view rest(text.data(), text.size());
  HttpUrl url;
  if (absl::ConsumePrefix(&rest, "http://")) {
    url.server.tls = false;
    url.server.port = 80;
  } else if (!absl::ConsumePrefix(&rest, "https://")) {
    return std::nullopt;
  }
  const size_t slash = std::min(rest.find('/'), rest.size());
  url.path = slash == rest.size() ? "/" : std::string(rest.substr(slash));
  rest = rest.substr(0, slash);
  absl::string_view host, port;
  const bool bracketed = absl::ConsumePrefix(&rest, "[");
  if (bracketed) {
    const size_t bracket = rest.find(']');
    if (bracket == rest.npos) return std::nullopt;
    host = rest.substr(0, bracket);
    port = rest.substr(bracket + 1);
  } else {
    const size_t colon = std::min(rest.find(':'), rest.size());
    host = rest.substr(0, colon);
    port = rest.substr(colon);
  }
  url.server.host = std::string(host);
  if (bracketed ? !IsAddressOfVersion6(url.server.host) : !IsName(url.server.host)) return std::nullopt;
  if (port.empty()) return url;
  const bool number = absl::ConsumePrefix(&port, ":") && absl::SimpleAtoi(port, &url.server.port);
  if (!number || url.server.port == 0 || url.server.port > 65535) return std::nullopt;
  return url;
}

}  // namespace cairn
