#include "store/s3/amazon_credentials.h"

#include <aws/auth/signable.h>
#include <aws/auth/signing.h>
#include <aws/auth/signing_config.h>
#include <aws/auth/signing_result.h>
#include <aws/common/array_list.h>
#include <aws/common/string.h>
#include <aws/http/proxy.h>
#include <aws/http/request_response.h>

#include <optional>

#include "absl/strings/str_cat.h"
#include "store/s3/aws_event.h"

namespace cairn {
namespace {

// A request that gets its signature. It is freed when both sides have let go, because credentials may come too late.
struct Signing {
  std::unique_ptr<aws_http_message, decltype(&aws_http_message_release)> message{
      aws_http_message_new_request(AwsAllocator()), &aws_http_message_release};
  std::unique_ptr<aws_signable, decltype(&aws_signable_destroy)> signable{nullptr, &aws_signable_destroy};
  HttpHeaders headers;  // that the signature adds
  AwsEvent ended;
};

void OnSigned(aws_signing_result* result, int error, void* data) {
  const std::shared_ptr<Signing> signing = TakeHeld<Signing>(data);
  aws_array_list* added = nullptr;
  if (error == 0) aws_signing_result_get_property_list(result, g_aws_http_headers_property_list_name, &added);
  for (size_t i = 0; added != nullptr && i < aws_array_list_length(added); ++i) {
    aws_signing_result_property header = {};
    aws_array_list_get_at(added, &header, i);
    signing->headers.emplace_back(aws_string_c_str(header.name), aws_string_c_str(header.value));
  }
  signing->ended.Set(error);
}

}  // namespace

aws_credentials_provider* AmazonCredentials::NewProvider() const {
  proxy_env_var_settings proxies = {};
  proxies.env_var_type = AWS_HPEV_ENABLE;
  aws_credentials_provider_chain_default_options chain = {};
  chain.bootstrap = runtime_.bootstrap();
  chain.tls_ctx = runtime_.tls();
  chain.proxy_ev_settings = &proxies;
  return aws_credentials_provider_new_chain_default(AwsAllocator(), &chain);
}

absl::StatusOr<std::unique_ptr<AmazonCredentials>> AmazonCredentials::Open(const AwsRuntime& runtime,
                                                                           const std::string& region,
                                                                           absl::Duration silence) {
  std::unique_ptr<AmazonCredentials> credentials(new AmazonCredentials(runtime, region, silence));
  MutexLock lock(credentials->mutex_);
  credentials->provider_ = credentials->NewProvider();
  if (credentials->provider_ == nullptr) return AwsRefuses("credentials");
  return credentials;
}

AmazonCredentials::~AmazonCredentials() {
  MutexLock lock(mutex_);
  aws_credentials_provider_release(provider_);
}

aws_credentials_provider* AmazonCredentials::Provider() {
  MutexLock lock(mutex_);
  return aws_credentials_provider_acquire(provider_);
}

void AmazonCredentials::PutOthersFor(const aws_credentials_provider* silent) {
  MutexLock lock(mutex_);
  if (provider_ != silent) return;
  aws_credentials_provider* const others = NewProvider();
  if (others == nullptr) return;
  aws_credentials_provider_release(provider_);
  provider_ = others;
}

StoreCredentials::Proof AmazonCredentials::Prove(const HttpRequest& request) {
  const auto signing = std::make_shared<Signing>();
  aws_http_message* const message = signing->message.get();
  aws_http_message_set_request_method(message, CursorOf(request.method));
  aws_http_message_set_request_path(message, CursorOf(request.target));
  for (const auto& [name, value] : request.headers) {
    aws_http_header header = {};
    header.name = CursorOf(name);
    header.value = CursorOf(value);
    aws_http_message_add_header(message, header);
  }
  signing->signable.reset(aws_signable_new_http_request(AwsAllocator(), message));
  aws_signing_config_aws config = {};
  config.config_type = AWS_SIGNING_CONFIG_AWS;
  config.algorithm = AWS_SIGNING_ALGORITHM_V4;
  config.signature_type = AWS_ST_HTTP_REQUEST_HEADERS;
  config.region = CursorOf(region_);
  config.service = CursorOf("s3");
  aws_date_time_init_now(&config.date);
  // To digest what is sent would cost more than to send it. Its checksum goes along, and https protects both; with http
  // whoever is between could change both.
  config.signed_body_value = g_aws_signed_body_value_unsigned_payload;
  config.signed_body_header = AWS_SBHT_X_AMZ_CONTENT_SHA256;
  const std::unique_ptr<aws_credentials_provider, decltype(&aws_credentials_provider_release)> provider(
      Provider(), &aws_credentials_provider_release);
  config.credentials_provider = provider.get();
  std::optional<int> error;
  void* const held = Held(signing);
  if (aws_sign_request_aws(AwsAllocator(), signing->signable.get(), reinterpret_cast<aws_signing_config_base*>(&config),
                           OnSigned, held) == AWS_OP_SUCCESS) {
    error = signing->ended.WaitFor(silence_, request.stop);
  } else {
    error = aws_last_error();
    TakeHeld<Signing>(held);
  }
  if (error == 0) return {std::move(signing->headers), "", ""};
  const bool stopped = request.stop != nullptr && *request.stop;
  if (!error.has_value() && !stopped) PutOthersFor(provider.get());
  return {
      {},
      error.has_value() ? AwsErrorText(*error) : "who gives them does not answer (web identity, container or machine)",
      NextWithoutAmazonCredentials(FromEnvironment)};
}

std::string NextWithoutAmazonCredentials(const Environment& environment) {
  const bool key = !environment("AWS_ACCESS_KEY_ID").empty();
  const bool secret = !environment("AWS_SECRET_ACCESS_KEY").empty();
  if (key != secret) {
    return key ? "Set AWS_SECRET_ACCESS_KEY too: only AWS_ACCESS_KEY_ID is set."
               : "Set AWS_ACCESS_KEY_ID too: only AWS_SECRET_ACCESS_KEY is set.";
  }
  if (const std::string profile = environment("AWS_PROFILE"); !profile.empty()) {
    return absl::StrCat("Look for the profile ", profile, " (AWS_PROFILE) in ~/.aws/credentials and ~/.aws/config.");
  }
  return "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE: nothing was found in the environment, in "
         "~/.aws, as web identity, from the container or as the machine's role.";
}

}  // namespace cairn
