#include "store/s3/s3_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

Environment Having(std::map<std::string, std::string> values) {
  return [values = std::move(values)](const char* name) {
    const auto at = values.find(name);
    return at == values.end() ? "" : at->second;
  };
}

TEST(S3AddressTest, ParseS3Root_OnlyABucket_IsAmazonsInItsRegion) {
  const auto address = ParseS3Root("s3://models", Having({{"AWS_REGION", "eu-west-1"}}));
  ASSERT_TRUE(address.ok()) << address.status();
  EXPECT_EQ(address->Server().HostHeader(), "models.s3.eu-west-1.amazonaws.com");
  EXPECT_EQ(address->PathOf("a b/c"), "/a%20b/c");
  EXPECT_EQ(address->prefix, "");
  EXPECT_TRUE(address->server.tls);
}

TEST(S3AddressTest, ParseS3Root_ABucketWithADot_StandsInThePath) {
  const auto address = ParseS3Root("s3://models.example", Having({}));
  ASSERT_TRUE(address.ok()) << address.status();
  EXPECT_EQ(address->Server().HostHeader(), "s3.us-east-1.amazonaws.com");
  EXPECT_EQ(address->PathOf("k"), "/models.example/k");
}

TEST(S3AddressTest, ParseS3Root_AnEndpointInTheEnvironment_IsTakenUnlessTheRootNamesOne) {
  const Environment environment = Having({{"AWS_ENDPOINT_URL", "http://localhost:9000"}, {"AWS_CA_BUNDLE", "/ca.pem"}});
  const auto address = ParseS3Root("s3://models/team//run/", environment);
  ASSERT_TRUE(address.ok()) << address.status();
  EXPECT_EQ(address->prefix, "team/run/");
  EXPECT_EQ(address->Server().HostHeader(), "localhost:9000");
  EXPECT_EQ(address->PathOf("k"), "/models/k");
  EXPECT_EQ(address->ca_file, "/ca.pem");
  EXPECT_FALSE(address->server.tls);
  const auto other = ParseS3Root("s3://models?endpoint=https://store:8443/&style=virtual&region=x", environment);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(other->Server().HostHeader(), "models.store:8443");
  EXPECT_EQ(other->region, "x");
  EXPECT_TRUE(other->server.tls);
}

TEST(S3AddressTest, ParseS3Root_AWrongRoot_IsRefused) {
  for (const char* root :
       {"s3://", "s3://A_B", "s3://models/../x", "s3://models?endpoint=store", "s3://models?x=y",
        "s3://models?style=both", "s3://models?endpoint=http://a:x", "s3://models?endpoint=http://a/b"}) {
    EXPECT_TRUE(HasReason(ParseS3Root(root, Having({})).status(), Reason::kBadRequest)) << root;
  }
  for (const char* root :
       {"gs://A", "gs://models?region=x", "gs://models?style=path", "gs://models?endpoint=https://a/b"}) {
    EXPECT_TRUE(HasReason(ParseS3Root(root, Having({})).status(), Reason::kBadRequest)) << root;
  }
  for (const char* root : {"az://models", "gs+x://models", "my-store:/models", "a.b://models"}) {
    EXPECT_TRUE(IsObjectStoreRoot(root)) << root;
    EXPECT_TRUE(HasReason(ParseS3Root(root, Having({})).status(), Reason::kUnsupported)) << root;
  }
  for (const std::string scheme : {"s3", "gs"}) {
    for (const std::string& root :
         {scheme + ":/models", scheme + ":models", absl::AsciiStrToUpper(scheme) + "://models"}) {
      const auto refused = ParseS3Root(root, Having({}));
      EXPECT_TRUE(IsObjectStoreRoot(root));
      EXPECT_EQ(MetadataOf(refused.status()).at("next"), "Write " + scheme + "://models.") << root;
    }
  }
  for (const char* root : {"/ckpt", "./s3:/models", "ckpt:1", "s3", "s3:", ":/x", "a b:/x", "-a:/x"})
    EXPECT_FALSE(IsObjectStoreRoot(root));
}

TEST(S3AddressTest, ParseS3Root_AnAddressOfVersion6_IsAnEndpoint) {
  const auto address = ParseS3Root("s3://models?endpoint=https://[::1]:9000", Having({}));
  ASSERT_TRUE(address.ok()) << address.status();
  EXPECT_EQ(address->Server().host, "::1");
  EXPECT_EQ(address->Server().HostHeader(), "[::1]:9000");
}

TEST(S3AddressTest, ParseS3Root_ABucketOfGoogle_StandsInThePathOfItsStore) {
  const auto address = ParseS3Root("gs://models_1/team//run/", Having({{"AWS_ENDPOINT_URL", "http://localhost:9000"}}));
  ASSERT_TRUE(address.ok()) << address.status();
  EXPECT_EQ(address->Server().HostHeader(), "storage.googleapis.com");
  EXPECT_TRUE(address->server.tls);
  EXPECT_EQ(address->PathOf("k"), "/models_1/k");
  EXPECT_EQ(address->NameOf("k"), "gs://models_1/k");
  EXPECT_EQ(address->prefix, "team/run/");
  EXPECT_EQ(address->dialect, &GoogleDialect());
}

TEST(S3AddressTest, ParseS3Root_GooglesVariables_NameTheEndpoint) {
  const auto host = [](const std::string& root, std::map<std::string, std::string> values) {
    const auto address = ParseS3Root(root, Having(std::move(values)));
    return address.ok() ? address->Server().HostHeader() : std::string(address.status().message());
  };
  EXPECT_EQ(host("gs://models", {{"STORAGE_EMULATOR_HOST", "localhost:9000"}}), "localhost:9000");
  EXPECT_EQ(host("gs://models", {{"STORAGE_EMULATOR_HOST", "http://localhost:9000"}}), "localhost:9000");
  const std::map<std::string, std::string> both = {
      {"CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE", "https://storage-a.p.googleapis.com/storage/v1/"},
      {"STORAGE_EMULATOR_HOST", "localhost:9000"}};
  EXPECT_EQ(host("gs://models", both), "storage-a.p.googleapis.com");
  EXPECT_EQ(host("gs://models?endpoint=http://localhost:1", both), "localhost:1");
}

TEST(S3AddressTest, ParseS3Root_ABucketThatIsNone_SaysWhyAndWhichNamesThereAre) {
  for (const auto& [root, wrong] : std::map<std::string, std::string>{
           {"s3://x", "it is too short; buckets have names of 3 to 63 lower-case letters"},
           {"s3://", "it is missing"},
           {"s3://a_b", "it has '_'"},
           {"s3://Models", "it has 'M'"},
           {"gs://x", "it is too short; buckets have names of 3 to 222 lower-case letters"},
           {"s3://" + std::string(64, 'a'), "it is too long"},
           {"gs://" + std::string(223, 'a'), "it is too long"}}) {
    const absl::Status refused = ParseS3Root(root, Having({})).status();
    EXPECT_TRUE(HasReason(refused, Reason::kBadRequest)) << refused;
    EXPECT_THAT(std::string(refused.message()), ::testing::HasSubstr(wrong));
  }
}

}  // namespace
}  // namespace cairn
