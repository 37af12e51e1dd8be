// Sends one request to an object store, and receives its answer: Amazon's C libraries for connections, TLS, proxies,
// credentials and signatures. Nothing is sent twice here.
#ifndef CAIRN_STORE_S3_S3_WIRE_H_
#define CAIRN_STORE_S3_S3_WIRE_H_

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
#include "store/s3/s3_address.h"

namespace cairn {

struct S3Request {
  std::string method;
  std::string key;
  std::string query;  // encoded: "uploads" or "partNumber=1&uploadId=x"
  std::vector<std::pair<std::string, std::string>> headers;
  std::string_view body;  // stands until Send has returned
  // The body of a good answer is that of an object, and not the store's own words.
  bool content = false;
  // Where the body of a good answer to a request with a Range goes. Null: to S3Answer::body.
  char* to = nullptr;
  // The body of a good answer has at most so many bytes.
  uint64_t max_bytes = kMaxWords;
  // Once it is true, the request is given up soon. Null: never.
  const std::atomic<bool>* stop = nullptr;
  // The store's own words are shorter: a listing of 1,000 names has less than 1 MiB.
  static constexpr uint64_t kMaxWords = uint64_t{16} << 20;
};

struct S3Answer {
  int status = 0;                              // of HTTP; 0: no whole answer came
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
  uint64_t received = 0;  // bytes that went to S3Request::to
  std::string trouble;    // why no whole answer came
  // Why the answer was not taken whole, though the store gave it. RESOURCE_EXHAUSTED (MESSAGE_TOO_LARGE): it has more
  // bytes than the request allows; (MEMORY_LIMIT). UNAVAILABLE (STORAGE_ERROR): it is no range, and one was asked for.
  absl::Status refused;
  bool sent = false;            // the store may have done what was asked
  bool no_credentials = false;  // no credentials were found

  std::string Header(const std::string& name) const;
};

struct S3WireOptions {
  int connections = 16;
  // A request is given up when nothing has moved for so long, or there is no connection, or there are no credentials.
  absl::Duration silence = absl::Seconds(30);
  // It is given up in any case after this, and a second more for each 256 KiB that it sends, or asks for.
  absl::Duration longest = absl::Minutes(2);
};

// Thread-safe. Its threads end with it, unless a server of credentials or a proxy holds one; then that one is left
// behind. Secrets go into signatures only, never into a message.
class S3Wire {
 public:
  using Options = S3WireOptions;
  // INVALID_ARGUMENT (BAD_REQUEST): the CA file cannot be used. UNAVAILABLE (STORAGE_ERROR): the system refuses what
  // the libraries need.
  static absl::StatusOr<std::unique_ptr<S3Wire>> Open(const S3Address& address, const Options& options = {});
  ~S3Wire();

  S3Answer Send(const S3Request& request);

 private:
  struct Parts;
  S3Wire(S3Address address, const Options& options);

  const S3Address address_;
  const Options options_;
  std::unique_ptr<Parts> parts_;
};

}  // namespace cairn

#endif  // CAIRN_STORE_S3_S3_WIRE_H_
