// Sends one request to an object store, and receives its answer. Nothing is sent twice here.
#ifndef CAIRN_STORE_S3_S3_WIRE_H_
#define CAIRN_STORE_S3_S3_WIRE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "store/s3/aws_runtime.h"
#include "store/s3/http_pool.h"
#include "store/s3/s3_address.h"
#include "store/s3/store_credentials.h"

namespace cairn {

struct S3Request {
  std::string method;
  std::string key;
  std::string query;  // encoded: "uploads" or "partNumber=1&uploadId=x"
  HttpHeaders headers;
  std::string_view body;  // stands until Send has returned
  // The body of a good answer is that of an object, and not the store's own words.
  bool content = false;
  // Where the body of a good answer to a request with a Range goes. Null: to HttpAnswer::body.
  char* to = nullptr;
  // The body of a good answer has at most so many bytes.
  uint64_t max_bytes = HttpRequest::kMaxWords;
  // Once it is true, the request is given up soon. Null: never.
  const std::atomic<bool>* stop = nullptr;
};

struct S3Answer : HttpAnswer {
  bool no_credentials = false;  // none were found
  std::string next;             // what to do about that
  bool has_others = false;      // the credentials have expired, and another try has others
};

// `silence` also bounds the wait for credentials.
using S3WireOptions = HttpPoolOptions;

// Thread-safe. Its threads end with it, unless a server of credentials or a proxy holds one; then that one is left
// behind. Secrets go into headers only, never into a message.
class S3Wire {
 public:
  using Options = S3WireOptions;
  // INVALID_ARGUMENT (BAD_REQUEST): the CA file cannot be used. UNAVAILABLE (STORAGE_ERROR): the system refuses what
  // the libraries need. Else the errors of OpenGoogleCredentials.
  static absl::StatusOr<std::unique_ptr<S3Wire>> Open(const S3Address& address, const Options& options = {});

  S3Answer Send(const S3Request& request);

 private:
  S3Wire(S3Address address, std::unique_ptr<AwsRuntime> runtime, std::unique_ptr<StoreCredentials> credentials,
         std::unique_ptr<HttpPool> pool)
      : address_(std::move(address)),
        runtime_(std::move(runtime)),
        credentials_(std::move(credentials)),
        pool_(std::move(pool)) {}

  const S3Address address_;
  const std::unique_ptr<AwsRuntime> runtime_;
  const std::unique_ptr<StoreCredentials> credentials_;
  const std::unique_ptr<HttpPool> pool_;
};

}  // namespace cairn

#endif  // CAIRN_STORE_S3_S3_WIRE_H_
