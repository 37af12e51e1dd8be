#include "common/http/http_request.h"

#include <gtest/gtest.h>

namespace cairn {
namespace {

TEST(HttpRequestTest, ReadRequest_WhatABrowserSends_IsRead) {
  HttpRequest request;
  const std::string head =
      "GET /api/job/my%20job%2Fa?x=1#y HTTP/1.1\r\nhOST: 127.0.0.1:7430\r\nAccept: */*\r\n"
      "Authorization:  Bearer secret \r\n\r\n";
  EXPECT_EQ(ReadRequest(head + "body", request), RequestState::kComplete);
  EXPECT_EQ(request.method, "GET");
  EXPECT_EQ(request.path, "/api/job/my job/a");
  EXPECT_EQ(request.host, "127.0.0.1:7430");
  EXPECT_EQ(request.authorization, "Bearer secret");
  for (size_t size = 0; size < head.size(); ++size) {
    EXPECT_EQ(ReadRequest(head.substr(0, size), request), RequestState::kIncomplete) << size;
  }
}

TEST(HttpRequestTest, ReadRequest_NoHeaders_IsARequestOfHttp10) {
  HttpRequest request = {"old", "old", "old", "old"};
  EXPECT_EQ(ReadRequest("HEAD /metrics HTTP/1.0\r\n\r\n", request), RequestState::kComplete);
  EXPECT_EQ(request.method + request.path + request.host + request.authorization, "HEAD/metrics");
}

TEST(HttpRequestTest, ReadRequest_WhatIsNoRequest_IsRefused) {
  HttpRequest request;
  for (const std::string head : {
           "\r\n\r\n",
           "GET\r\n\r\n",
           "GET /\r\n\r\n",
           "GET / HTTP/2.0\r\n\r\n",
           "GET  / HTTP/1.1\r\n\r\n",
           "GET / HTTP/1.1 \r\n\r\n",
           "G(T / HTTP/1.1\r\n\r\n",
           "GET http://host/ HTTP/1.1\r\n\r\n",
           "GET * HTTP/1.1\r\n\r\n",
           "GET /% HTTP/1.1\r\n\r\n",
           "GET /%4 HTTP/1.1\r\n\r\n",
           "GET /%zz HTTP/1.1\r\n\r\n",
           "GET /%00 HTTP/1.1\r\n\r\n",
           "GET /%0a HTTP/1.1\r\n\r\n",
           "GET /\x1b HTTP/1.1\r\n\r\n",
           "GET / HTTP/1.1\r\nHost\r\n\r\n",
           "GET / HTTP/1.1\r\nHost : a\r\n\r\n",
           "GET / HTTP/1.1\r\n: a\r\n\r\n",
           "GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n",
           "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
           "GET / HTTP/1.1\r\nHost: a\nAuthorization: b\r\n\r\n",
           "\x16\x03\x01\x02\r\n\r\n",
       }) {
    EXPECT_EQ(ReadRequest(head, request), RequestState::kMalformed) << head;
  }
}

TEST(HttpRequestTest, ReadRequest_AHeadThatDoesNotEnd_IsTooLong) {
  HttpRequest request;
  const std::string begin = "GET / HTTP/1.1\r\nx: ";
  EXPECT_EQ(ReadRequest(begin + std::string(kMaxRequestHead - begin.size() - 1, 'a'), request),
            RequestState::kIncomplete);
  EXPECT_EQ(ReadRequest(begin + std::string(kMaxRequestHead - begin.size(), 'a'), request), RequestState::kTooLong);
}

}  // namespace
}  // namespace cairn
