#include "store/s3/google_key_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_split.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;

const absl::Time kNow = absl::FromUnixSeconds(1'700'000'000);

struct Key {
  std::string text;  // PEM
  EVP_PKEY* key = nullptr;
};

Key MakeKey(EVP_PKEY* key) {
  BIO* const text = BIO_new(BIO_s_mem());
  PEM_write_bio_PrivateKey(text, key, nullptr, nullptr, 0, nullptr, nullptr);
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(text, &bytes);
  Key made = {std::string(bytes, static_cast<size_t>(size)), key};
  BIO_free(text);
  return made;
}

bool Verifies(EVP_PKEY* key, const std::string& text, const std::string& signature) {
  EVP_MD_CTX* const context = EVP_MD_CTX_new();
  const bool good =
      EVP_DigestVerifyInit(context, nullptr, EVP_sha256(), nullptr, key) == 1 &&
      EVP_DigestVerify(context, reinterpret_cast<const unsigned char*>(signature.data()), signature.size(),
                       reinterpret_cast<const unsigned char*>(text.data()), text.size()) == 1;
  EVP_MD_CTX_free(context);
  return good;
}

TEST(GoogleKeyFileTest, TokenOfServiceAccount_IsSignedByItsKeyForAnHour) {
  const Key key = MakeKey(EVP_RSA_gen(2048));
  const nlohmann::json file = {{"type", "service_account"},
                               {"client_email", "train@project.iam.gserviceaccount.com"},
                               {"private_key", key.text},
                               {"private_key_id", "key-1"}};
  const auto parsed = ParseGoogleKeyFile(file.dump(), "key.json");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  const auto token = TokenOfServiceAccount(*parsed, "key.json", kNow);
  ASSERT_TRUE(token.ok()) << token.status();
  const std::vector<std::string> parts = absl::StrSplit(token->text, '.');
  ASSERT_EQ(parts.size(), 3u);
  std::string header, claims, signature;
  ASSERT_TRUE(absl::WebSafeBase64Unescape(parts[0], &header));
  ASSERT_TRUE(absl::WebSafeBase64Unescape(parts[1], &claims));
  ASSERT_TRUE(absl::WebSafeBase64Unescape(parts[2], &signature));
  EXPECT_EQ(nlohmann::json::parse(header), (nlohmann::json{{"alg", "RS256"}, {"typ", "JWT"}, {"kid", "key-1"}}));
  const nlohmann::json said = nlohmann::json::parse(claims);
  EXPECT_EQ(said["iss"], "train@project.iam.gserviceaccount.com");
  EXPECT_EQ(said["sub"], said["iss"]);
  EXPECT_LE(said["iat"], absl::ToUnixSeconds(kNow));
  EXPECT_EQ(said["exp"].get<int64_t>() - said["iat"].get<int64_t>(), 3600);
  EXPECT_EQ(absl::ToUnixSeconds(token->expires), said["exp"].get<int64_t>());
  EXPECT_TRUE(Verifies(key.key, parts[0] + "." + parts[1], signature));
  EXPECT_EQ(token->text.find('='), std::string::npos);
  EVP_PKEY_free(key.key);
}

TEST(GoogleKeyFileTest, TokenOfServiceAccount_AKeyThatIsNone_IsRefusedWithoutShowingIt) {
  const Key curve = MakeKey(EVP_EC_gen("P-256"));
  for (const std::string& text : {std::string("the-secret"), curve.text}) {
    GoogleKeyFile key;
    key.email = "a";
    key.private_key = text;
    const absl::Status refused = TokenOfServiceAccount(key, "key.json", kNow).status();
    EXPECT_TRUE(HasReason(refused, Reason::kBadRequest)) << refused;
    EXPECT_EQ(refused.message(), "key.json has a private key that is no RSA key in PEM");
  }
  EVP_PKEY_free(curve.key);
}

TEST(GoogleKeyFileTest, ParseGoogleKeyFile_OfAPerson_AsksWithItsRefreshToken) {
  const auto key = ParseGoogleKeyFile(
      R"({"type": "authorized_user", "client_id": "a/b", "client_secret": "c", "refresh_token": "1//x"})", "adc.json");
  ASSERT_TRUE(key.ok()) << key.status();
  EXPECT_EQ(key->token_uri, "https://oauth2.googleapis.com/token");
  EXPECT_EQ(TokenQuestion(*key), "grant_type=refresh_token&client_id=a%2Fb&client_secret=c&refresh_token=1%2F%2Fx");
}

TEST(GoogleKeyFileTest, ParseGoogleKeyFile_WhatItCannotUse_IsRefusedByName) {
  const absl::Status external = ParseGoogleKeyFile(R"({"type": "external_account"})", "adc.json").status();
  EXPECT_TRUE(HasReason(external, Reason::kUnsupported)) << external;
  EXPECT_THAT(std::string(external.message()), HasSubstr("adc.json has credentials of the type external_account"));
  EXPECT_THAT(NextActionOf(external), HasSubstr("service account"));
  for (const char* text : {"", "{", "[]", "{}", R"({"type": 1})", R"({"type": "service_account"})",
                           R"({"type": "service_account", "client_email": "a", "private_key": 5})",
                           R"({"type": "authorized_user", "client_id": "a", "client_secret": "b"})"}) {
    const absl::Status refused = ParseGoogleKeyFile(text, "adc.json").status();
    EXPECT_TRUE(HasReason(refused, Reason::kBadRequest)) << text << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("adc.json"));
  }
}

TEST(GoogleKeyFileTest, ParseTokenAnswer_OnlyATokenThatExpires_IsOne) {
  const auto token =
      ParseTokenAnswer(R"({"access_token": "ya29.x", "expires_in": 3599, "token_type": "Bearer"})", kNow);
  ASSERT_TRUE(token.ok()) << token.status();
  EXPECT_EQ(token->text, "ya29.x");
  EXPECT_EQ(token->expires - kNow, absl::Seconds(3599));
  EXPECT_LE(ParseTokenAnswer(R"({"access_token": "x", "expires_in": 1e300})", kNow)->expires - kNow, absl::Hours(24));
  for (const std::string& text :
       {std::string("<html>"), std::string(R"({"access_token": "x"})"), std::string(R"({"expires_in": 1})"),
        std::string(R"({"access_token": "", "expires_in": 1})"), std::string(R"({"access_token": 1, "expires_in": 1})"),
        // A line's end would begin another header.
        std::string(R"({"access_token": "x\r\nHost: y", "expires_in": 1})"),
        std::string(R"({"access_token": "x", "expires_in": "1"})"), std::string(1 << 20, '['),
        R"({"expires_in": 1, "access_token": ")" + std::string(17 << 10, 'x') + "\"}"}) {
    EXPECT_TRUE(HasReason(ParseTokenAnswer(text, kNow).status(), Reason::kStorageError)) << text.substr(0, 80);
  }
}

TEST(GoogleKeyFileTest, ReasonOfRefusal_WhatAServerSays_IsPrintable) {
  EXPECT_EQ(ReasonOfRefusal(R"({"error": "invalid_grant", "error_description": "Token has been revoked."})"),
            "invalid_grant: Token has been revoked.");
  EXPECT_EQ(ReasonOfRefusal(R"({"error": "a\u001b[2J"})"), "a\\x1b[2J");
  EXPECT_EQ(ReasonOfRefusal("<html>"), "");
}

TEST(GoogleKeyFileTest, ParseBareToken_LosesSpacesOnly) {
  EXPECT_EQ(ParseBareToken(" ya29.x\n", "the-file")->text, "ya29.x");
  const absl::Status refused = ParseBareToken("a b", "the-file").status();
  EXPECT_TRUE(HasReason(refused, Reason::kBadRequest)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("the-file"));
}

}  // namespace
}  // namespace cairn
