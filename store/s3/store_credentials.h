// Who proves to a store from whom a request comes.
#ifndef CAIRN_STORE_S3_STORE_CREDENTIALS_H_
#define CAIRN_STORE_S3_STORE_CREDENTIALS_H_

#include <string>

#include "store/s3/http_pool.h"

namespace cairn {

// Thread-safe. Secrets go into headers only, never into a message.
class StoreCredentials {
 public:
  struct Proof {
    HttpHeaders headers;  // which the request needs besides its own
    std::string trouble;  // why there are none
    std::string next;     // what a person can do about that
  };

  virtual ~StoreCredentials() = default;

  // Makes the proof for a request. Blocks while credentials are fetched, for a bounded time; once the request is to
  // stop, it returns soon.
  virtual Proof Prove(const HttpRequest& request) = 0;
  // Is called when the store answered that it does not know who this is (401). Returns true if another try has other
  // credentials, because these have expired.
  virtual bool Replace(const Proof&) { return false; }
};

}  // namespace cairn

#endif  // CAIRN_STORE_S3_STORE_CREDENTIALS_H_
