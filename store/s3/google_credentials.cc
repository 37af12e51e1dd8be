#include "store/s3/google_credentials.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <optional>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "store/s3/http_status.h"
#include "store/s3/signature_v4.h"

namespace cairn {
namespace {

// The server of metadata gives the same token until five minutes before its end; Google's libraries ask then.
constexpr absl::Duration kRenewBefore = absl::Seconds(225);
// After a fetch that failed, while the old token is good.
constexpr absl::Duration kNextFetch = absl::Seconds(10);
// A file with a token is read so often.
constexpr absl::Duration kFileLife = absl::Minutes(1);
constexpr size_t kMaxFile = 64 << 10;
constexpr char kMetadataPath[] = "/computeMetadata/v1/instance/service-accounts/default/token";

std::string BearerOf(const GoogleToken& token) { return absl::StrCat("Bearer ", token.text); }

StoreCredentials::Proof NoProof(const absl::Status& why) { return {{}, std::string(why.message()), NextActionOf(why)}; }

absl::Status NoToken(std::string_view why, std::string_view next) {
  return MakeError(Reason::kStorageError, why, {{"next", std::string(next)}});
}

class GoogleHmac : public StoreCredentials {
 public:
  GoogleHmac(std::string id, std::string secret) : id_(std::move(id)), secret_(std::move(secret)) {}

  Proof Prove(const HttpRequest& request) override {
    // As for Amazon, the body is not digested.
    return {SignV4({}, id_, secret_, request, "UNSIGNED-PAYLOAD", absl::Now()), "", ""};
  }

 private:
  const std::string id_;
  const std::string secret_;
};

absl::StatusOr<std::string> ReadSmallFile(const std::string& file, std::string_view variable) {
  std::ifstream stream(file, std::ios::binary);
  std::string text(kMaxFile, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(stream.gcount()));
  if (!stream.bad() && stream.eof()) return text;
  const std::string why = text.size() == kMaxFile ? "is no file of credentials: it is too large" : "cannot be read";
  return MakeError(Reason::kBadRequest, absl::StrCat(file, " ", why),
                   {{"file", file}, {"next", absl::StrCat("Look at ", std::string(variable), ", which names it.")}});
}

// Asks a server for a token.
absl::StatusOr<GoogleToken> Ask(const AwsRuntime& runtime, const HttpServer& server, HttpRequest request, bool proxies,
                                absl::Duration silence, const std::string& next) {
  HttpPoolOptions options;
  options.connections = 1;
  options.proxies = proxies;
  options.silence = silence;
  options.longest = silence;
  CAIRN_ASSIGN_OR_RETURN(const auto pool, HttpPool::Open(runtime, server, options));
  request.headers.emplace_back("Host", server.HostHeader());
  const HttpAnswer answer = pool->Send(request);
  const std::string who = server.HostHeader();
  if (answer.status == 0 || !answer.refused.ok()) {
    return NoToken(
        answer.refused.ok() ? answer.trouble : absl::StrCat(who, ": ", std::string(answer.refused.message())), next);
  }
  if (!IsGood(answer.status)) {
    return NoToken(absl::StrCat(who, " gives no token: HTTP ", answer.status, " ", ReasonOfRefusal(answer.body)), next);
  }
  auto token = ParseTokenAnswer(answer.body, absl::Now());
  if (!token.ok()) return NoToken(absl::StrCat(who, ": ", std::string(token.status().message())), next);
  return token;
}

GoogleTokenSource FromMetadata(const AwsRuntime& runtime, const HttpServer& server, absl::Duration silence) {
  return [&runtime, server, silence](const std::atomic<bool>* stop) {
    HttpRequest request;
    request.method = "GET";
    request.target = kMetadataPath;
    request.headers = {{"Metadata-Flavor", "Google"}};
    request.stop = stop;
    return Ask(runtime, server, std::move(request), /*proxies=*/false, silence,
               "Set GOOGLE_APPLICATION_CREDENTIALS to the key of a service account, run `gcloud auth "
               "application-default login`, or set GS_ACCESS_KEY_ID and GS_SECRET_ACCESS_KEY: nothing was found in the "
               "environment or in ~/.config/gcloud, and the machine gives no token.");
  };
}

absl::StatusOr<GoogleToken> FromKeyFile(const AwsRuntime& runtime, const std::string& file, absl::Duration silence,
                                        const std::atomic<bool>* stop) {
  // It may have been replaced since the last time.
  CAIRN_ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(file, "GOOGLE_APPLICATION_CREDENTIALS"));
  CAIRN_ASSIGN_OR_RETURN(const GoogleKeyFile key, ParseGoogleKeyFile(text, file));
  if (key.kind == GoogleKeyFile::Kind::kServiceAccount) return TokenOfServiceAccount(key, file, absl::Now());
  const auto url = ParseHttpUrl(key.token_uri);
  if (!url.has_value() || !(url->server.tls || url->server.IsOnThisMachine())) {
    return NoToken(absl::StrCat(file, " has a token_uri that is not https://HOST"), "Make the file anew.");
  }
  const std::string body = TokenQuestion(key);
  HttpRequest request;
  request.method = "POST";
  request.target = url->path;
  request.headers = {{"Content-Type", "application/x-www-form-urlencoded"},
                     {"Content-Length", absl::StrCat(body.size())}};
  request.body = body;
  request.stop = stop;
  return Ask(runtime, url->server, std::move(request), /*proxies=*/true, silence,
             "Run `gcloud auth application-default login` again.");
}

// Returns the file of `gcloud auth application-default login`; empty if there is none.
std::string FileOfGcloud(const Environment& environment) {
  std::string directory = environment("CLOUDSDK_CONFIG");
  if (directory.empty() && !environment("HOME").empty()) {
    directory = absl::StrCat(environment("HOME"), "/.config/gcloud");
  }
  std::string file = absl::StrCat(directory, "/application_default_credentials.json");
  return !directory.empty() && std::ifstream(file).good() ? file : "";
}

absl::StatusOr<GoogleTokenSource> SourceIn(const AwsRuntime& runtime, absl::Duration silence,
                                           const Environment& environment) {
  if (const std::string text = environment("CLOUDSDK_AUTH_ACCESS_TOKEN"); !text.empty()) {
    CAIRN_ASSIGN_OR_RETURN(GoogleToken token, ParseBareToken(text, "CLOUDSDK_AUTH_ACCESS_TOKEN"));
    return [token = std::move(token)](const std::atomic<bool>*) -> absl::StatusOr<GoogleToken> { return token; };
  }
  if (const std::string file = environment("CLOUDSDK_AUTH_ACCESS_TOKEN_FILE"); !file.empty()) {
    return [file](const std::atomic<bool>*) -> absl::StatusOr<GoogleToken> {
      CAIRN_ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(file, "CLOUDSDK_AUTH_ACCESS_TOKEN_FILE"));
      CAIRN_ASSIGN_OR_RETURN(GoogleToken token, ParseBareToken(text, file));
      token.expires = absl::Now() + kFileLife;
      return token;
    };
  }
  std::string file = environment("GOOGLE_APPLICATION_CREDENTIALS");
  if (file.empty()) file = FileOfGcloud(environment);
  if (!file.empty()) {
    CAIRN_ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(file, "GOOGLE_APPLICATION_CREDENTIALS"));
    CAIRN_RETURN_IF_ERROR(ParseGoogleKeyFile(text, file).status());
    return
        [&runtime, file, silence](const std::atomic<bool>* stop) { return FromKeyFile(runtime, file, silence, stop); };
  }
  std::string host = environment("GCE_METADATA_HOST");
  if (host.empty()) host = "metadata.google.internal";
  const auto url = ParseHttpUrl(absl::StrCat("http://", host));
  if (!url.has_value()) {
    return MakeError(Reason::kBadRequest, absl::StrCat("GCE_METADATA_HOST is ", host, ", which is not HOST[:PORT]"),
                     {{"next", "Correct GCE_METADATA_HOST."}});
  }
  return FromMetadata(runtime, url->server, silence);
}

}  // namespace

StoreCredentials::Proof GoogleBearer::Prove(const HttpRequest& request) {
  constexpr absl::Duration kLook = absl::Milliseconds(100);
  const auto stopped = [&] { return request.stop != nullptr && *request.stop; };
  {
    MutexLock lock(mutex_);
    const uint64_t before = fetches_;
    for (;;) {
      const absl::Time now = absl::Now();
      if (usable(now) && (now < renewal_ || fetching_)) return {{{"Authorization", BearerOf(token_)}}, "", ""};
      // Whoever waited for a fetch that failed does not begin the next one: all would wait one behind the other.
      if (fetches_ != before && !failure_.ok()) return NoProof(failure_);
      if (!fetching_) break;
      if (stopped()) return {{}, "it was stopped", ""};
      changed_.WaitFor(mutex_, kLook);
    }
    fetching_ = true;
  }
  absl::StatusOr<GoogleToken> fetched = source_(request.stop);
  MutexLock lock(mutex_);
  fetching_ = false;
  ++fetches_;
  changed_.NotifyAll();
  const absl::Time now = absl::Now();
  failure_ = absl::OkStatus();
  if (fetched.ok()) {
    token_ = *std::move(fetched);
    const absl::Duration life = token_.expires - now;
    renewal_ = now + std::max(life - kRenewBefore, life / 2);
  } else if (usable(now)) {
    renewal_ = now + kNextFetch;
  } else if (stopped()) {
    return {{}, "it was stopped", ""};
  } else {
    failure_ = fetched.status();
    return NoProof(failure_);
  }
  return {{{"Authorization", BearerOf(token_)}}, "", ""};
}

bool GoogleBearer::Replace(const Proof& refused) {
  MutexLock lock(mutex_);
  if (refused.headers.empty()) return false;
  // Another request has replaced it already.
  if (refused.headers.front().second != BearerOf(token_)) return true;
  // It was fetched anew, and is still the same: the store does not want it.
  if (token_.text == refused_) return false;
  refused_ = token_.text;
  token_ = {};
  return true;
}

absl::StatusOr<std::unique_ptr<StoreCredentials>> OpenGoogleCredentials(const AwsRuntime& runtime,
                                                                        const HttpServer& store, absl::Duration silence,
                                                                        const Environment& environment) {
  std::string id = environment("GS_ACCESS_KEY_ID"), secret = environment("GS_SECRET_ACCESS_KEY");
  if (id.empty() != secret.empty()) {
    return MakeError(Reason::kBadRequest, "of GS_ACCESS_KEY_ID and GS_SECRET_ACCESS_KEY only one is set",
                     {{"next", "Set both, or none."}});
  }
  if (!id.empty()) return std::make_unique<GoogleHmac>(std::move(id), std::move(secret));
  if (!store.tls && !store.IsOnThisMachine()) {
    return MakeError(
        Reason::kBadRequest,
        absl::StrCat("a token would go to ", store.HostHeader(), " without TLS, and whoever is between could use it"),
        {{"next", "Give an endpoint with https, or set GS_ACCESS_KEY_ID and GS_SECRET_ACCESS_KEY."}});
  }
  CAIRN_ASSIGN_OR_RETURN(GoogleTokenSource source, SourceIn(runtime, silence, environment));
  return std::make_unique<GoogleBearer>(std::move(source));
}

}  // namespace cairn
