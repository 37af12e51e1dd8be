#include "store/s3/store_credentials.h"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/status/reason.h"
#include "store/s3/amazon_credentials.h"
#include "store/s3/google_credentials.h"

namespace cairn {
namespace {

Environment Having(std::map<std::string, std::string> values) {
  return [values = std::move(values)](const char* name) {
    const auto at = values.find(name);
    return at == values.end() ? "" : at->second;
  };
}

std::string TokenIn(const StoreCredentials::Proof& proof) {
  return proof.headers.empty() ? proof.trouble : proof.headers.front().second;
}

// Gives the tokens "0", "1", ... of one life.
struct Tokens {
  explicit Tokens(absl::Duration of_each) : life(of_each) {}

  GoogleTokenSource Source() {
    return [this](const std::atomic<bool>*) -> absl::StatusOr<GoogleToken> {
      const int number = given++;
      if (slow) absl::SleepFor(absl::Milliseconds(50));
      if (fails) return MakeError(Reason::kStorageError, absl::StrCat("failure ", number), {{"next", "Wait."}});
      return GoogleToken{absl::StrCat(number), absl::Now() + life};
    };
  }

  const absl::Duration life;
  std::atomic<int> given = 0;
  std::atomic<bool> slow = false, fails = false;
};

TEST(GoogleBearerTest, Prove_ATokenThatLastsLong_IsFetchedOnce) {
  Tokens tokens(absl::Hours(1));
  tokens.slow = true;
  GoogleBearer bearer(tokens.Source());
  std::vector<std::thread> callers;
  for (int i = 0; i < 8; ++i) {
    callers.emplace_back([&] { EXPECT_EQ(TokenIn(bearer.Prove({})), "Bearer 0"); });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(tokens.given, 1);
}

TEST(GoogleBearerTest, Prove_ATokenHalfOfWhoseLifeIsOver_IsRenewed) {
  Tokens tokens(absl::Milliseconds(400));
  GoogleBearer bearer(tokens.Source());
  EXPECT_EQ(TokenIn(bearer.Prove({})), "Bearer 0");
  EXPECT_EQ(TokenIn(bearer.Prove({})), "Bearer 0");
  absl::SleepFor(absl::Milliseconds(250));
  EXPECT_EQ(TokenIn(bearer.Prove({})), "Bearer 1");
}

TEST(GoogleBearerTest, Prove_TheRenewalFails_TheOldTokenServesUntilItsEnd) {
  Tokens tokens(absl::Milliseconds(600));
  GoogleBearer bearer(tokens.Source());
  EXPECT_EQ(TokenIn(bearer.Prove({})), "Bearer 0");
  tokens.fails = true;
  absl::SleepFor(absl::Milliseconds(350));
  EXPECT_EQ(TokenIn(bearer.Prove({})), "Bearer 0");
  absl::SleepFor(absl::Milliseconds(300));
  const StoreCredentials::Proof none = bearer.Prove({});
  EXPECT_EQ(none.trouble, "failure 2");
  EXPECT_EQ(none.next, "Wait.");
  tokens.fails = false;
  EXPECT_EQ(TokenIn(bearer.Prove({})), "Bearer 3");
}

TEST(GoogleBearerTest, Prove_TheServerFails_AllWhoWaitForItAreToldAtOnce) {
  Tokens tokens(absl::Hours(1));
  tokens.slow = tokens.fails = true;
  GoogleBearer bearer(tokens.Source());
  std::atomic<bool> begun = false;
  std::thread first([&] {
    begun = true;
    bearer.Prove({});
  });
  while (!begun || tokens.given == 0) absl::SleepFor(absl::Milliseconds(1));
  std::vector<std::thread> others;
  for (int i = 0; i < 8; ++i) {
    others.emplace_back([&] { EXPECT_FALSE(bearer.Prove({}).trouble.empty()); });
  }
  for (std::thread& other : others) other.join();
  first.join();
  EXPECT_LE(tokens.given, 3) << "they did not ask one behind the other";
}

TEST(GoogleBearerTest, Replace_ATokenThatTheStoreRefuses_IsFetchedAnewOnce) {
  Tokens tokens(absl::Hours(1));
  GoogleBearer bearer(tokens.Source());
  const StoreCredentials::Proof first = bearer.Prove({});
  EXPECT_TRUE(bearer.Replace(first));
  const StoreCredentials::Proof second = bearer.Prove({});
  EXPECT_EQ(TokenIn(second), "Bearer 1");
  EXPECT_TRUE(bearer.Replace(first)) << "another request has replaced it";
  EXPECT_EQ(TokenIn(bearer.Prove({})), "Bearer 1");
  EXPECT_EQ(tokens.given, 2);

  GoogleBearer same([](const std::atomic<bool>*) -> absl::StatusOr<GoogleToken> { return GoogleToken{"same"}; });
  EXPECT_TRUE(same.Replace(same.Prove({})));
  EXPECT_FALSE(same.Replace(same.Prove({}))) << "there is no other one";
}

TEST(GoogleCredentialsTest, OpenGoogleCredentials_WhatCannotBeUsed_IsRefused) {
  const auto runtime = AwsRuntime::Open("", "CA", /*tls=*/false);
  ASSERT_TRUE(runtime.ok()) << runtime.status();
  const HttpServer google = {true, "storage.googleapis.com", 443}, open = {false, "store", 80};
  const auto opened = [&](const HttpServer& store, std::map<std::string, std::string> values) {
    return OpenGoogleCredentials(**runtime, store, absl::Seconds(1), Having(std::move(values))).status();
  };
  const std::map<std::string, std::string> token = {{"CLOUDSDK_AUTH_ACCESS_TOKEN", "x"}};
  const std::map<std::string, std::string> hmac = {{"GS_ACCESS_KEY_ID", "x"}, {"GS_SECRET_ACCESS_KEY", "y"}};
  EXPECT_TRUE(opened(google, token).ok());
  EXPECT_TRUE(opened({false, "127.0.0.1", 80}, token).ok());
  EXPECT_TRUE(HasReason(opened(open, token), Reason::kBadRequest)) << "whoever is between could use it";
  EXPECT_TRUE(opened(open, hmac).ok());
  EXPECT_TRUE(HasReason(opened(google, {{"GS_ACCESS_KEY_ID", "x"}}), Reason::kBadRequest));
  EXPECT_TRUE(HasReason(opened(google, {{"CLOUDSDK_AUTH_ACCESS_TOKEN", "a b"}}), Reason::kBadRequest));
  EXPECT_TRUE(HasReason(opened(google, {{"GOOGLE_APPLICATION_CREDENTIALS", "/absent"}}), Reason::kBadRequest));
  EXPECT_TRUE(HasReason(opened(google, {{"GOOGLE_APPLICATION_CREDENTIALS", "/dev/zero"}}), Reason::kBadRequest));
  EXPECT_TRUE(HasReason(opened(google, {{"GCE_METADATA_HOST", "a b"}}), Reason::kBadRequest));
}

TEST(AmazonCredentialsTest, NextWithoutAmazonCredentials_SaysWhichVariableIsMissing) {
  const auto next = [](std::map<std::string, std::string> values) {
    return NextWithoutAmazonCredentials(Having(std::move(values)));
  };
  EXPECT_NE(next({{"AWS_ACCESS_KEY_ID", "x"}}).find("SECRET_ACCESS_KEY too"), std::string::npos);
  EXPECT_NE(next({{"AWS_PROFILE", "train"}}).find("profile train"), std::string::npos);
  EXPECT_NE(next({}).find("AWS_ACCESS_KEY_ID"), std::string::npos);
}

}  // namespace
}  // namespace cairn
