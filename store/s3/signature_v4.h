// Signatures of requests with a secret key, as Google has them (GOOG4-HMAC-SHA256). Amazon's differ by their words
// only. A function of the request.
#ifndef CAIRN_STORE_S3_SIGNATURE_V4_H_
#define CAIRN_STORE_S3_SIGNATURE_V4_H_

#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "store/s3/http_pool.h"

namespace cairn {

struct SignatureWords {
  std::string_view algorithm = "GOOG4-HMAC-SHA256";
  std::string_view key = "GOOG4";  // begins the first key
  std::string_view region = "auto";
  std::string_view service = "storage";
  std::string_view request = "goog4_request";
  std::string_view header = "x-goog-";  // begins the headers
};

// Returns the headers that a request with `headers` needs besides, for the key with this id. `payload` is the digest of
// the body, or UNSIGNED-PAYLOAD. All headers are signed, so nobody between may change one.
HttpHeaders SignV4(const SignatureWords& words, const std::string& id, std::string_view secret,
                   const HttpRequest& request, std::string_view payload, absl::Time now);

}  // namespace cairn

#endif  // CAIRN_STORE_S3_SIGNATURE_V4_H_
