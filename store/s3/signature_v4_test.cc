#include "store/s3/signature_v4.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/digest.h"

namespace cairn {
namespace {

absl::Time At(const std::string& text) {
  absl::Time time;
  std::string error;
  EXPECT_TRUE(absl::ParseTime(absl::RFC3339_full, text, &time, &error)) << error;
  return time;
}

std::string AuthorizationIn(const HttpHeaders& headers) { return headers.back().second; }

// The words of Amazon, whose documentation has examples with their signatures.
constexpr SignatureWords kAmazon = {"AWS4-HMAC-SHA256", "AWS4", "us-east-1", "s3", "aws4_request", "x-amz-"};
constexpr char kId[] = "AKIAIOSFODNN7EXAMPLE";
constexpr char kSecret[] = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
constexpr char kScope[] = "AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request";

TEST(SignatureV4Test, SignV4_TheExamplesOfAmazon_AreTheSame) {
  HttpRequest get;
  get.method = "GET";
  get.target = "/test.txt";
  get.headers = {{"Host", "examplebucket.s3.amazonaws.com"}, {"Range", "bytes=0-9"}};
  const std::string nothing = DigestHex(Digest(""));
  EXPECT_EQ(AuthorizationIn(SignV4(kAmazon, kId, kSecret, get, nothing, At("2013-05-24T00:00:00Z"))),
            absl::StrCat("AWS4-HMAC-SHA256 Credential=", kScope,
                         ", SignedHeaders=host;range;x-amz-content-sha256;x-amz-date, "
                         "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"));
  HttpRequest list = get;
  list.target = "/?max-keys=2&prefix=J";
  list.headers = {{"Host", "examplebucket.s3.amazonaws.com"}};
  EXPECT_EQ(AuthorizationIn(SignV4(kAmazon, kId, kSecret, list, nothing, At("2013-05-24T00:00:00Z"))),
            absl::StrCat("AWS4-HMAC-SHA256 Credential=", kScope,
                         ", SignedHeaders=host;x-amz-content-sha256;x-amz-date, "
                         "Signature=34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"));
  HttpRequest lifecycle = list;
  lifecycle.target = "/?lifecycle";
  EXPECT_EQ(AuthorizationIn(SignV4(kAmazon, kId, kSecret, lifecycle, nothing, At("2013-05-24T00:00:00Z"))),
            absl::StrCat("AWS4-HMAC-SHA256 Credential=", kScope,
                         ", SignedHeaders=host;x-amz-content-sha256;x-amz-date, "
                         "Signature=fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"));
}

TEST(SignatureV4Test, SignV4_OfGoogle_HasItsWords) {
  HttpRequest put;
  put.method = "PUT";
  put.target = "/models/key";
  put.headers = {{"Host", "storage.googleapis.com"}, {"x-goog-if-generation-match", "0"}};
  const HttpHeaders added = SignV4({}, "GOOG1E", "secret", put, "UNSIGNED-PAYLOAD", At("2026-01-02T03:04:05Z"));
  ASSERT_EQ(added.size(), 3u);
  EXPECT_EQ(added[0], std::make_pair(std::string("x-goog-content-sha256"), std::string("UNSIGNED-PAYLOAD")));
  EXPECT_EQ(added[1], std::make_pair(std::string("x-goog-date"), std::string("20260102T030405Z")));
  EXPECT_TRUE(added[2].second.starts_with(
      "GOOG4-HMAC-SHA256 Credential=GOOG1E/20260102/auto/storage/goog4_request, "
      "SignedHeaders=host;x-goog-content-sha256;x-goog-date;x-goog-if-generation-match, Signature="))
      << added[2].second;
}

}  // namespace
}  // namespace cairn
