// Sends requests to one server over connections that are kept: Amazon's C libraries for HTTP, TLS and proxies. Nothing
// is sent twice here.
#ifndef CAIRN_STORE_S3_HTTP_POOL_H_
#define CAIRN_STORE_S3_HTTP_POOL_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "store/s3/aws_runtime.h"
#include "store/s3/http_url.h"

namespace cairn {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  // A store's own words are shorter: a listing of 1,000 names has less than 1 MiB.
  static constexpr uint64_t kMaxWords = uint64_t{16} << 20;

  std::string method;
  std::string target;     // path and query, encoded
  HttpHeaders headers;    // "Host" and "Content-Length" too
  std::string_view body;  // stands until Send has returned
  char* to = nullptr;     // where the body of a good answer goes, which must be a range. Null: to HttpAnswer::body
  uint64_t max_bytes = kMaxWords;  // of the body of a good answer
  uint64_t wanted_bytes = 0;       // which the answer may take more time for
  // Once it is true, the request is given up soon. Null: never.
  const std::atomic<bool>* stop = nullptr;
};

struct HttpAnswer {
  int status = 0;  // 0: no whole answer came
  // Names are in lower case. The values of headers with one name stand behind one another, with ", " between.
  std::map<std::string, std::string> headers;
  std::string body;
  uint64_t received = 0;  // bytes that went to HttpRequest::to
  std::string trouble;    // why no whole answer came
  // Why the answer was not taken whole, though it was given. RESOURCE_EXHAUSTED (MESSAGE_TOO_LARGE): it has more bytes
  // than the request allows; (MEMORY_LIMIT). UNAVAILABLE (STORAGE_ERROR): it is no range, and one was asked for.
  absl::Status refused;
  bool sent = false;  // the server may have done what was asked

  std::string Header(const std::string& name) const;
};

struct HttpPoolOptions {
  int connections = 16;
  bool proxies = true;  // those of the environment are used
  // A request is given up when nothing has moved for so long, or there is no connection.
  absl::Duration silence = absl::Seconds(30);
  // It is given up in any case after this, and a second more for each 256 KiB that it sends, or asks for.
  absl::Duration longest = absl::Minutes(2);
};

// Thread-safe. It is gone with its connections, unless a proxy holds one; then that one is left behind.
class HttpPool {
 public:
  using Options = HttpPoolOptions;
  // `runtime` must outlive the pool. UNAVAILABLE (STORAGE_ERROR): the system refuses what the libraries need.
  static absl::StatusOr<std::unique_ptr<HttpPool>> Open(const AwsRuntime& runtime, const HttpServer& server,
                                                        const Options& options);
  ~HttpPool();

  HttpAnswer Send(const HttpRequest& request);

 private:
  struct Parts;
  HttpPool(const HttpServer& server, const Options& options);

  const HttpServer server_;
  const Options options_;
  std::unique_ptr<Parts> parts_;
};

}  // namespace cairn

#endif  // CAIRN_STORE_S3_HTTP_POOL_H_
