// A small HTTP server for requests that only read: metrics, and the page of `cairn serve`. One thread handles all
// connections, so a silent client costs a descriptor and no thread. Worker threads make the answers.
#ifndef CAIRN_COMMON_HTTP_HTTP_SERVER_H_
#define CAIRN_COMMON_HTTP_HTTP_SERVER_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/file/unique_fd.h"
#include "common/http/http_request.h"

namespace cairn {

struct HttpAnswer {
  int status = 200;
  std::string type;  // of the body
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;  // besides those for type, length and connection
};

struct HttpServerOptions {
  int workers = 1;  // threads that answer requests
  // If set, one more thread answers the requests for which it returns true, so that they never wait for others.
  std::function<bool(const HttpRequest& request)> urgent;
  // The maximum number of open connections; in any case at most a sixteenth of the process's limit on open files. A
  // further connection replaces the one that has kept the server waiting for longest, or else the request that has
  // waited for longest and is not urgent.
  size_t connections = 256;
  // The maximum total size in bytes of the answers that clients have not read yet; a single answer may be larger.
  // Beyond it, the connection that has read nothing for longest is closed.
  size_t unread_bytes = size_t{64} << 20;
  // How long a client may take to send its request, and to read each piece of the answer.
  absl::Duration patience = absl::Seconds(5);
};

// Each connection is closed after one answer. Thread-safe.
class HttpServer {
 public:
  // Answers a request. Called on the worker threads, several at a time.
  using Handler = std::function<HttpAnswer(const HttpRequest& request)>;

  // Answers the connections of listening sockets (common/rpc/listening_sockets.h), which must not block.
  // RESOURCE_EXHAUSTED (MEMORY_LIMIT): the system refused the threads, or a descriptor.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(std::vector<UniqueFd> listeners, Handler handler,
                                                           const HttpServerOptions& options = {});
  // Waits for requests that are being answered. Afterwards the handler is not called any more.
  ~HttpServer();

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace cairn

#endif  // CAIRN_COMMON_HTTP_HTTP_SERVER_H_
