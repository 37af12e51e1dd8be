// A small HTTP server for questions: metrics, and the page of `cairn serve`. One thread has all connections, so a
// client that says nothing costs a descriptor and no thread, and others do the work of those that have asked.
#ifndef CAIRN_COMMON_HTTP_HTTP_SERVER_H_
#define CAIRN_COMMON_HTTP_HTTP_SERVER_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/http/http_request.h"

namespace cairn {

struct HttpAnswer {
  int status = 200;
  std::string type;  // of the body
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;  // besides those for type, length and connection
};

struct HttpServerOptions {
  int workers = 1;  // so many requests are answered at a time
  // So many connections may be open, and never more than a sixteenth of the process's open files. One more takes the
  // place of the one that has kept the server waiting for longest.
  size_t connections = 256;
  // Answers that clients have not taken yet have at most so many bytes in all, and are at least one. Beyond it, the
  // client goes that has taken nothing for longest.
  size_t unread_bytes = size_t{64} << 20;
  // A client gets so long to ask, and so long for each piece of the answer that it takes.
  absl::Duration patience = absl::Seconds(5);
};

// Every answer ends its connection. Thread-safe.
class HttpServer {
 public:
  // Answers a request; called from the workers' threads, several at a time.
  using Handler = std::function<HttpAnswer(const HttpRequest& request)>;

  // Listens on `address` (host:port; port 0 takes a free one). `make_handler` makes the handler for the port that was
  // bound, before the first request is answered. INVALID_ARGUMENT (BAD_REQUEST): the address cannot be bound; the
  // message says why. RESOURCE_EXHAUSTED (MEMORY_LIMIT): the system refused the threads.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const std::string& address,
                                                           absl::FunctionRef<Handler(int port)> make_handler,
                                                           const HttpServerOptions& options = {});
  // Closes all connections, and waits for requests that are being answered. Then the handler is not called any more.
  ~HttpServer();

  int port() const;

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace cairn

#endif  // CAIRN_COMMON_HTTP_HTTP_SERVER_H_
