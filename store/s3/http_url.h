// Addresses of servers that speak HTTP.
#ifndef CAIRN_STORE_S3_HTTP_URL_H_
#define CAIRN_STORE_S3_HTTP_URL_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace cairn {

struct HttpServer {
  bool tls = true;
  std::string host;  // a name, or an address; of IPv6 without brackets
  uint32_t port = 443;

  // The value of the header "Host": "store:9000", "[::1]".
  std::string HostHeader() const;
  // What is sent there does not leave this machine.
  bool IsOnThisMachine() const;
};

struct HttpUrl {
  HttpServer server;
  std::string path;  // from the slash on; "/" if there is none
};

// Reads "http[s]://HOST[:PORT][/PATH]". Nothing: it is no such text, or names a user.
std::optional<HttpUrl> ParseHttpUrl(std::string_view text);

}  // namespace cairn

#endif  // CAIRN_STORE_S3_HTTP_URL_H_
