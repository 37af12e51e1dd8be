#include "store/s3/s3_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

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
  EXPECT_EQ(address->HostHeader(), "models.s3.eu-west-1.amazonaws.com");
  EXPECT_EQ(address->PathOf("a b/c"), "/a%20b/c");
  EXPECT_EQ(address->prefix, "");
  EXPECT_TRUE(address->tls);
}

TEST(S3AddressTest, ParseS3Root_ABucketWithADot_StandsInThePath) {
  const auto address = ParseS3Root("s3://models.example", Having({}));
  ASSERT_TRUE(address.ok()) << address.status();
  EXPECT_EQ(address->HostHeader(), "s3.us-east-1.amazonaws.com");
  EXPECT_EQ(address->PathOf("k"), "/models.example/k");
}

TEST(S3AddressTest, ParseS3Root_AnEndpointInTheEnvironment_IsTakenUnlessTheRootNamesOne) {
  const Environment environment = Having({{"AWS_ENDPOINT_URL", "http://localhost:9000"}, {"AWS_CA_BUNDLE", "/ca.pem"}});
  const auto address = ParseS3Root("s3://models/team//run/", environment);
  ASSERT_TRUE(address.ok()) << address.status();
  EXPECT_EQ(address->prefix, "team/run/");
  EXPECT_EQ(address->HostHeader(), "localhost:9000");
  EXPECT_EQ(address->PathOf("k"), "/models/k");
  EXPECT_EQ(address->ca_file, "/ca.pem");
  EXPECT_FALSE(address->tls);
  const auto other = ParseS3Root("s3://models?endpoint=https://store:8443/&style=virtual&region=x", environment);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(other->HostHeader(), "models.store:8443");
  EXPECT_EQ(other->region, "x");
  EXPECT_TRUE(other->tls);
}

TEST(S3AddressTest, ParseS3Root_AWrongRoot_IsRefused) {
  for (const char* root :
       {"s3://", "s3://A_B", "s3://models/../x", "s3://models?endpoint=store", "s3://models?x=y",
        "s3://models?style=both", "s3://models?endpoint=http://a:x", "s3://models?endpoint=http://a/b"}) {
    EXPECT_TRUE(HasReason(ParseS3Root(root, Having({})).status(), Reason::kBadRequest)) << root;
  }
  for (const char* root : {"gs://models", "az://models"}) {
    EXPECT_TRUE(IsObjectStoreRoot(root));
    EXPECT_TRUE(HasReason(ParseS3Root(root, Having({})).status(), Reason::kUnsupported)) << root;
  }
  for (const char* root : {"s3:/models", "S3://models"}) {
    const auto refused = ParseS3Root(root, Having({}));
    EXPECT_TRUE(IsObjectStoreRoot(root));
    EXPECT_EQ(MetadataOf(refused.status()).at("next"), "Write s3://models.") << root;
  }
  for (const char* root : {"/ckpt", "./s3:/models", "ckpt:1", ":/x", "a b:/x"}) EXPECT_FALSE(IsObjectStoreRoot(root));
}

TEST(S3AddressTest, NextWithoutCredentials_SaysWhichVariableIsMissing) {
  EXPECT_NE(NextWithoutCredentials(Having({{"AWS_ACCESS_KEY_ID", "x"}})).find("SECRET_ACCESS_KEY too"),
            std::string::npos);
  EXPECT_NE(NextWithoutCredentials(Having({{"AWS_PROFILE", "train"}})).find("profile train"), std::string::npos);
  EXPECT_NE(NextWithoutCredentials(Having({})).find("AWS_ACCESS_KEY_ID"), std::string::npos);
}

}  // namespace
}  // namespace cairn
