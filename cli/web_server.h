// Serves a WebSite over HTTP, by means of CivetWeb.
#ifndef CAIRN_CLI_WEB_SERVER_H_
#define CAIRN_CLI_WEB_SERVER_H_

#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "cli/web_site.h"

namespace cairn::cli {

// Thread-safe.
class WebServer {
 public:
  // Listens on `address` (host:port; port 0 takes a free one). `make_site` makes the site of the port that was bound,
  // before the first request is answered. INVALID_ARGUMENT (BAD_REQUEST): the address cannot be bound.
  static absl::StatusOr<std::unique_ptr<WebServer>> Start(const std::string& address,
                                                          absl::FunctionRef<WebSite(int port)> make_site);
  // Waits for requests that are being answered.
  ~WebServer();

  int port() const;

 private:
  struct Impl;
  explicit WebServer(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace cairn::cli

#endif  // CAIRN_CLI_WEB_SERVER_H_
