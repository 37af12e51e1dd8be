// Credentials for Google's store: a token in the header of each request, or a signature with a secret key.
#ifndef CAIRN_STORE_S3_GOOGLE_CREDENTIALS_H_
#define CAIRN_STORE_S3_GOOGLE_CREDENTIALS_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "store/s3/aws_runtime.h"
#include "store/s3/google_key_file.h"
#include "store/s3/s3_address.h"
#include "store/s3/store_credentials.h"

namespace cairn {

// Fetches a token. Blocks for a bounded time; once `stop` (which may be null) is true, it returns soon. An error's
// message says why there is none, and its next action what to do.
using GoogleTokenSource = absl::AnyInvocable<absl::StatusOr<GoogleToken>(const std::atomic<bool>* stop)>;

// Keeps a token until it is about to expire; then one of the callers fetches another one, while the others still use
// the old one or wait.
class GoogleBearer : public StoreCredentials {
 public:
  explicit GoogleBearer(GoogleTokenSource source) : source_(std::move(source)) {}

  Proof Prove(const HttpRequest& request) override;
  bool Replace(const Proof& refused) override;

 private:
  bool usable(absl::Time now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !token_.text.empty() && now < token_.expires;
  }

  // Is called by one thread at a time.
  GoogleTokenSource source_;
  Mutex mutex_;
  CondVar changed_;
  GoogleToken token_ ABSL_GUARDED_BY(mutex_);
  absl::Time renewal_ ABSL_GUARDED_BY(mutex_);   // when another one is fetched
  std::string refused_ ABSL_GUARDED_BY(mutex_);  // the last token that the store did not accept
  bool fetching_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t fetches_ ABSL_GUARDED_BY(mutex_) = 0;  // that have ended
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);  // of the last of them
};

// Takes the first of these that there is: an HMAC key (GS_ACCESS_KEY_ID, GS_SECRET_ACCESS_KEY), a token
// (CLOUDSDK_AUTH_ACCESS_TOKEN, or in the file CLOUDSDK_AUTH_ACCESS_TOKEN_FILE), a file that Google's tools write
// (GOOGLE_APPLICATION_CREDENTIALS, or the one of `gcloud auth application-default login`), and the server of metadata
// of the machine (GCE_METADATA_HOST). `runtime` must outlive the object. A server of tokens is waited for until
// `silence`. INVALID_ARGUMENT (BAD_REQUEST): one of these is wrong, or a token would go to another machine without TLS;
// UNIMPLEMENTED (UNSUPPORTED): the file is of another kind.
absl::StatusOr<std::unique_ptr<StoreCredentials>> OpenGoogleCredentials(const AwsRuntime& runtime,
                                                                        const HttpServer& store, absl::Duration silence,
                                                                        const Environment& environment);

}  // namespace cairn

#endif  // CAIRN_STORE_S3_GOOGLE_CREDENTIALS_H_
