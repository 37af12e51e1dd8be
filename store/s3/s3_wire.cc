#include "store/s3/s3_wire.h"

#include "absl/strings/str_cat.h"
#include "common/status/status.h"
#include "store/s3/amazon_credentials.h"
#include "store/s3/google_credentials.h"

namespace cairn {
namespace {

constexpr int kUnauthorized = 401;  // HTTP

absl::StatusOr<std::unique_ptr<StoreCredentials>> OpenCredentials(const S3Address& address, const AwsRuntime& runtime,
                                                                  absl::Duration silence) {
  switch (address.dialect->account) {
    case S3Dialect::Account::kGoogle:
      return OpenGoogleCredentials(runtime, address.server, silence, FromEnvironment);
    case S3Dialect::Account::kAmazon:
      break;
  }
  return AmazonCredentials::Open(runtime, address.region, silence);
}

}  // namespace

absl::StatusOr<std::unique_ptr<S3Wire>> S3Wire::Open(const S3Address& address, const Options& options) {
  CAIRN_ASSIGN_OR_RETURN(auto runtime,
                         AwsRuntime::Open(address.ca_file, address.dialect->ca_variable, address.server.tls));
  CAIRN_ASSIGN_OR_RETURN(auto credentials, OpenCredentials(address, *runtime, options.silence));
  CAIRN_ASSIGN_OR_RETURN(auto pool, HttpPool::Open(*runtime, address.Server(), options));
  return std::unique_ptr<S3Wire>(new S3Wire(address, std::move(runtime), std::move(credentials), std::move(pool)));
}

S3Answer S3Wire::Send(const S3Request& request) {
  HttpRequest sent;
  sent.method = request.method;
  sent.target = absl::StrCat(address_.PathOf(request.key), request.query.empty() ? "" : "?", request.query);
  sent.headers = {{"Host", address_.Server().HostHeader()}};
  sent.headers.insert(sent.headers.end(), request.headers.begin(), request.headers.end());
  if (!request.body.empty() || request.method == "PUT" || request.method == "POST") {
    sent.headers.emplace_back("Content-Length", absl::StrCat(request.body.size()));
  }
  sent.body = request.body;
  sent.to = request.to;
  sent.max_bytes = request.max_bytes;
  if (request.content) sent.wanted_bytes = request.max_bytes;
  sent.stop = request.stop;
  StoreCredentials::Proof proof = credentials_->Prove(sent);
  S3Answer answer;
  if (!proof.trouble.empty()) {
    answer.no_credentials = true;
    answer.trouble = absl::StrCat("no credentials: ", proof.trouble);
    answer.next = std::move(proof.next);
    return answer;
  }
  sent.headers.insert(sent.headers.end(), proof.headers.begin(), proof.headers.end());
  sent.headers.emplace_back("User-Agent", "cairn");  // not signed, because proxies change it
  static_cast<HttpAnswer&>(answer) = pool_->Send(sent);
  answer.has_others = answer.status == kUnauthorized && credentials_->Replace(proof);
  return answer;
}

}  // namespace cairn
