#include "store/s3/google_key_file.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/printable.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "store/s3/s3_address.h"

namespace cairn {
namespace {

// What a token is good for. Google's libraries ask for the same.
constexpr char kScope[] = "https://www.googleapis.com/auth/cloud-platform";
constexpr char kTokenUri[] = "https://oauth2.googleapis.com/token";
constexpr absl::Duration kLife = absl::Hours(1);
// So that a clock that is a little fast makes no token of the future.
constexpr absl::Duration kSlowClock = absl::Seconds(10);
constexpr size_t kMaxToken = 16 << 10;
constexpr size_t kMaxReason = 200;

nlohmann::json ParseObject(std::string_view text) {
  nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  return json.is_object() ? json : nlohmann::json::object();
}

std::string TextIn(const nlohmann::json& object, const char* name) {
  const auto at = object.find(name);
  return at != object.end() && at->is_string() ? at->get<std::string>() : "";
}

// A token goes into a header, which ends at a line's end.
bool IsToken(std::string_view text) {
  return !text.empty() && text.size() <= kMaxToken &&
         std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c <= '~'; });
}

absl::Status BadFile(const std::string& file, std::string_view why) {
  return MakeError(
      Reason::kBadRequest, absl::StrCat(file, " ", std::string(why)),
      {{"file", file},
       {"next",
        "Let GOOGLE_APPLICATION_CREDENTIALS name the key of a service account, or make the file anew by `gcloud "
        "auth application-default login`."}});
}

// Signs with RSA and SHA-256. Empty: the key is none.
std::string Signed(const std::string& private_key, const std::string& text) {
  const std::unique_ptr<BIO, decltype(&BIO_free)> bytes(
      BIO_new_mem_buf(private_key.data(), static_cast<int>(private_key.size())), &BIO_free);
  // A key with a password would ask for it at the terminal.
  const auto no_password = [](char*, int, int, void*) { return -1; };
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(
      PEM_read_bio_PrivateKey(bytes.get(), nullptr, no_password, nullptr), &EVP_PKEY_free);
  // Why it failed stays in a list of the thread, where s2n or gRPC might take it for an error of their own.
  ERR_clear_error();
  if (key == nullptr || EVP_PKEY_base_id(key.get()) != EVP_PKEY_RSA) return "";
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(), &EVP_MD_CTX_free);
  size_t size = 0;
  const auto* data = reinterpret_cast<const unsigned char*>(text.data());
  if (EVP_DigestSignInit(context.get(), nullptr, EVP_sha256(), nullptr, key.get()) != 1 ||
      EVP_DigestSign(context.get(), nullptr, &size, data, text.size()) != 1) {
    return "";
  }
  std::string signature(size, '\0');
  if (EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(signature.data()), &size, data, text.size()) !=
      1) {
    return "";
  }
  signature.resize(size);
  return signature;
}

}  // namespace

absl::StatusOr<GoogleKeyFile> ParseGoogleKeyFile(std::string_view text, const std::string& file) {
  const nlohmann::json json = ParseObject(text);
  const std::string type = TextIn(json, "type");
  if (type.empty()) return BadFile(file, "is no file of Google's credentials: it has no \"type\"");
  GoogleKeyFile key;
  std::vector<std::pair<const char*, std::string*>> needed;
  if (type == "service_account") {
    needed = {{"client_email", &key.email}, {"private_key", &key.private_key}};
    key.key_id = TextIn(json, "private_key_id");
  } else if (type == "authorized_user") {
    key.kind = GoogleKeyFile::Kind::kPerson;
    needed = {
        {"client_id", &key.client_id}, {"client_secret", &key.client_secret}, {"refresh_token", &key.refresh_token}};
    key.token_uri = TextIn(json, "token_uri");
    if (key.token_uri.empty()) key.token_uri = kTokenUri;
  } else {
    return MakeError(Reason::kUnsupported,
                     absl::StrCat(file, " has credentials of the type ", Printable(CutText(type, kMaxReason)),
                                  ", which Cairn does not know; it knows service_account and authorized_user"),
                     {{"file", file},
                      {"next",
                       "Use the machine's own service account, on Kubernetes by Workload Identity, or the key "
                       "of a service account."}});
  }
  for (const auto& [name, value] : needed) {
    *value = TextIn(json, name);
    if (value->empty()) return BadFile(file, absl::StrCat("is a file of the type ", type, " without ", name));
  }
  return key;
}

absl::StatusOr<GoogleToken> TokenOfServiceAccount(const GoogleKeyFile& key, const std::string& file, absl::Time now) {
  nlohmann::json header = {{"alg", "RS256"}, {"typ", "JWT"}};
  if (!key.key_id.empty()) header["kid"] = key.key_id;
  const absl::Time begins = now - kSlowClock;
  const nlohmann::json claims = {{"iss", key.email},
                                 {"sub", key.email},
                                 {"scope", kScope},
                                 {"iat", absl::ToUnixSeconds(begins)},
                                 {"exp", absl::ToUnixSeconds(begins + kLife)}};
  const auto encoded = [](const nlohmann::json& json) {
    return absl::WebSafeBase64Escape(json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  };
  const std::string text = absl::StrCat(encoded(header), ".", encoded(claims));
  const std::string signature = Signed(key.private_key, text);
  if (signature.empty()) return BadFile(file, "has a private key that is no RSA key in PEM");
  return GoogleToken{absl::StrCat(text, ".", absl::WebSafeBase64Escape(signature)), begins + kLife};
}

std::string TokenQuestion(const GoogleKeyFile& key) {
  const auto encoded = [](const std::string& text) { return PercentEncoded(text, /*slash=*/true); };
  return absl::StrCat("grant_type=refresh_token&client_id=", encoded(key.client_id),
                      "&client_secret=", encoded(key.client_secret), "&refresh_token=", encoded(key.refresh_token));
}

absl::StatusOr<GoogleToken> ParseTokenAnswer(std::string_view text, absl::Time now) {
  const nlohmann::json json = ParseObject(text);
  GoogleToken token = {TextIn(json, "access_token")};
  const auto seconds = json.find("expires_in");
  if (!IsToken(token.text) || seconds == json.end() || !seconds->is_number()) {
    return MakeError(Reason::kStorageError, "the answer has no access_token with expires_in");
  }
  // A day is more than any of these lasts.
  token.expires = now + absl::Seconds(std::clamp(seconds->get<double>(), 0.0, 86400.0));
  return token;
}

std::string ReasonOfRefusal(std::string_view text) {
  const nlohmann::json json = ParseObject(text);
  const std::string error = TextIn(json, "error"), description = TextIn(json, "error_description");
  const std::string said = absl::StrCat(error, description.empty() ? "" : ": ", description);
  return Printable(CutText(said, kMaxReason));
}

absl::StatusOr<GoogleToken> ParseBareToken(std::string_view text, const std::string& from) {
  const std::string token(absl::StripAsciiWhitespace(absl::string_view(text.data(), text.size())));
  if (IsToken(token)) return GoogleToken{token};
  return MakeError(Reason::kBadRequest, absl::StrCat(from, " holds no token"),
                   {{"next", absl::StrCat("Put what `gcloud auth print-access-token` prints into ", from, ".")}});
}

}  // namespace cairn
