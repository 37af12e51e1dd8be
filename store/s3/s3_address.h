// Where a root in an object store is: what "s3://bucket/prefix" or "gs://bucket/prefix" and the environment say.
#ifndef CAIRN_STORE_S3_S3_ADDRESS_H_
#define CAIRN_STORE_S3_S3_ADDRESS_H_

#include <functional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "store/s3/http_url.h"
#include "store/s3/s3_dialect.h"

namespace cairn {

// True for a root that names an object store, or would if it were written right: "s3://...", "gs://...", and
// "az://...", "s3:..." or "S3://...", which ParseS3Root refuses. A directory of such a name is "./s3:/...".
bool IsObjectStoreRoot(std::string_view root);

struct S3Address {
  const S3Dialect* dialect = &AmazonDialect();
  std::string bucket;
  std::string prefix;  // "" or "team/run/"
  HttpServer server;   // to connect to; with the bucket in front of its host unless `path_style`
  std::string region;
  bool path_style = false;
  bool endpoint_is_named = false;  // else it is Amazon's or Google's own
  std::string ca_file;             // PEM; empty: those of the system

  // The server that has the bucket.
  HttpServer Server() const;
  // The path of a request for a key, percent-encoded.
  std::string PathOf(std::string_view key) const;
  // The name of an object in messages: "s3://bucket/key".
  std::string NameOf(std::string_view key) const;
};

// Returns the value of an environment variable; empty if it is not set.
using Environment = std::function<std::string(const char* name)>;
std::string FromEnvironment(const char* name);

// Reads "s3://BUCKET[/PREFIX][?endpoint=URL&region=NAME&style=path|virtual]", and
// "gs://BUCKET[/PREFIX][?endpoint=URL]". What the root does not say comes from the variables that other tools use:
// those of the dialect, AWS_REGION and AWS_DEFAULT_REGION. With an endpoint the bucket is part of the path, unless
// `style` says otherwise; without one the store is Amazon's, or Google's. INVALID_ARGUMENT (BAD_REQUEST): it is no such
// root; UNIMPLEMENTED (UNSUPPORTED): it names another kind of store.
absl::StatusOr<S3Address> ParseS3Root(std::string_view root, const Environment& environment);

// Percent-encodes all but letters, digits and "-_.~", and "/" where `slash` says so.
std::string PercentEncoded(std::string_view text, bool slash);

}  // namespace cairn

#endif  // CAIRN_STORE_S3_S3_ADDRESS_H_
