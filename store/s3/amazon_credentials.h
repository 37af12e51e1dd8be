// Credentials of Amazon's kind, from wherever its own tools take them, and signatures of version 4.
#ifndef CAIRN_STORE_S3_AMAZON_CREDENTIALS_H_
#define CAIRN_STORE_S3_AMAZON_CREDENTIALS_H_

#include <aws/auth/credentials.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "store/s3/aws_runtime.h"
#include "store/s3/s3_address.h"
#include "store/s3/store_credentials.h"

namespace cairn {

class AmazonCredentials : public StoreCredentials {
 public:
  // `runtime` must outlive the object. Whoever gives credentials is waited for until `silence`. UNAVAILABLE
  // (STORAGE_ERROR): the system refuses what the libraries need.
  static absl::StatusOr<std::unique_ptr<AmazonCredentials>> Open(const AwsRuntime& runtime, const std::string& region,
                                                                 absl::Duration silence);
  ~AmazonCredentials() override;

  Proof Prove(const HttpRequest& request) override;

 private:
  AmazonCredentials(const AwsRuntime& runtime, std::string region, absl::Duration silence)
      : runtime_(runtime), region_(std::move(region)), silence_(silence) {}

  // Makes the chain of what may give credentials. Null: it cannot.
  aws_credentials_provider* NewProvider() const;
  // Returns the credentials, which the caller must release.
  aws_credentials_provider* Provider();
  // Puts others in the place of those whose server does not answer: these ask it once, and wait for ever.
  void PutOthersFor(const aws_credentials_provider* silent);

  const AwsRuntime& runtime_;
  const std::string region_;
  const absl::Duration silence_;
  Mutex mutex_;
  aws_credentials_provider* provider_ ABSL_GUARDED_BY(mutex_) = nullptr;
};

// Says what to do where no credentials were found: which variables of the environment are incomplete or mislead.
std::string NextWithoutAmazonCredentials(const Environment& environment);

}  // namespace cairn

#endif  // CAIRN_STORE_S3_AMAZON_CREDENTIALS_H_
