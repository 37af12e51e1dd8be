#include "store/s3/http_url.h"

#include <gtest/gtest.h>

#include <string>

namespace cairn {
namespace {

TEST(HttpUrlTest, ParseHttpUrl_NamesAndAddresses_AreServers) {
  const auto header = [](const std::string& text) {
    const auto url = ParseHttpUrl(text);
    return url.has_value() ? url->server.HostHeader() : "none";
  };
  EXPECT_EQ(header("https://store"), "store");
  EXPECT_EQ(header("https://store:443/"), "store");
  EXPECT_EQ(header("http://store:443"), "store:443");
  EXPECT_EQ(header("http://10.0.0.1:9000"), "10.0.0.1:9000");
  EXPECT_EQ(header("https://[fd00::1]"), "[fd00::1]");
  EXPECT_EQ(header("https://[::1]:9000"), "[::1]:9000");
  EXPECT_EQ(ParseHttpUrl("https://[::1]:9000")->server.host, "::1");
  EXPECT_EQ(ParseHttpUrl("https://a/b/c")->path, "/b/c");
  EXPECT_EQ(ParseHttpUrl("https://a")->path, "/");
  EXPECT_FALSE(ParseHttpUrl("http://a")->server.tls);
}

TEST(HttpUrlTest, ParseHttpUrl_WhatIsNoServer_IsNone) {
  for (const char* text : {"", "store", "ftp://store", "http://", "http://:80", "http://a:x", "http://a:0",
                           "http://a:65536", "http://a:", "http://u@a", "http://a b", "http://::1", "http://[::1",
                           "http://[::1]9000", "http://[a]", "http://a?b"}) {
    EXPECT_FALSE(ParseHttpUrl(text).has_value()) << text;
  }
}

TEST(HttpUrlTest, IsOnThisMachine_OnlyWhatLoopsBack) {
  for (const char* text : {"http://localhost:1", "http://127.0.0.1", "http://[::1]"}) {
    EXPECT_TRUE(ParseHttpUrl(text)->server.IsOnThisMachine()) << text;
  }
  for (const char* text : {"http://store", "http://10.0.0.1", "http://127.0.0.1.evil.example", "http://[::2]"}) {
    EXPECT_FALSE(ParseHttpUrl(text)->server.IsOnThisMachine()) << text;
  }
}

}  // namespace
}  // namespace cairn
