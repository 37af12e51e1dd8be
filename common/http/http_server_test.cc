#include "common/http/http_server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <latch>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/file/unique_fd.h"
#include "common/resources/open_files.h"
#include "common/rpc/listening_sockets.h"

namespace cairn {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kQuestion[] = "GET /hello HTTP/1.1\r\nHost: here\r\n\r\n";
// Only a failing test waits this long.
constexpr absl::Duration kNever = absl::Hours(1);

class HttpServerTest : public ::testing::Test {
 protected:
  // The server holds no more connections than a part of the files that may be open.
  void SetUp() override { RaiseOpenFileLimit(); }
  void Start(
      HttpServerOptions options, HttpServer::Handler handler = [](const HttpRequest& request) {
        return HttpAnswer{200, "text/plain", absl::StrCat(request.method, " ", request.path, " of ", request.host), {}};
      }) {
    auto listening = ListenAt("--listen", "127.0.0.1:0");
    ASSERT_TRUE(listening.ok()) << listening.status();
    port_ = listening->port;
    auto server = HttpServer::Start(std::move(listening->sockets), std::move(handler), options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  UniqueFd Connect(int receive_bytes = 0) const {
    UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (receive_bytes > 0) setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof(receive_bytes));
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(port_));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
    return fd;
  }
  static void Send(const UniqueFd& fd, std::string_view bytes) {
    ASSERT_EQ(send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }
  // Returns all that comes until the server ends its side.
  static std::string ReadAll(const UniqueFd& fd) {
    std::string all;
    char piece[65536];
    for (ssize_t got; (got = recv(fd.get(), piece, sizeof(piece), 0)) > 0;) all.append(piece, static_cast<size_t>(got));
    return all;
  }
  std::string Ask(std::string_view question = kQuestion) const {
    const UniqueFd fd = Connect();
    Send(fd, question);
    return ReadAll(fd);
  }

  int port_ = 0;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, Answer_ARequest_HasHeadersAndBody) {
  Start({.patience = kNever}, [](const HttpRequest& request) {
    return HttpAnswer{404, "text/plain", request.path, {{"Cache-Control", "no-store"}}};
  });
  EXPECT_EQ(Ask(),
            "HTTP/1.1 404 Not Found\r\nContent-Type: text/plain\r\nContent-Length: 6\r\nConnection: close\r\n"
            "Cache-Control: no-store\r\n\r\n/hello");
}

TEST_F(HttpServerTest, Answer_ARequestInPieces_IsAnsweredOnce) {
  std::atomic<int> calls = 0;
  Start({.patience = kNever}, [&](const HttpRequest&) {
    ++calls;
    return HttpAnswer{200, "text/plain", "done", {}};
  });
  const UniqueFd fd = Connect();
  for (const char* byte = kQuestion; *byte != '\0'; ++byte) Send(fd, {byte, 1});
  EXPECT_THAT(ReadAll(fd), EndsWith("\r\n\r\ndone"));
  EXPECT_EQ(calls, 1);
}

TEST_F(HttpServerTest, Answer_WhatIsNoRequest_SaysSo) {
  Start({.patience = kNever});
  EXPECT_THAT(Ask("\x16\x03\x01\x02\r\n\r\n"), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(Ask(std::string(kMaxRequestHead, 'a')), StartsWith("HTTP/1.1 431 "));
}

TEST_F(HttpServerTest, Answer_ABodyThatIsNotRead_DoesNotBreakTheAnswerOff) {
  Start({.patience = kNever},
        [](const HttpRequest&) { return HttpAnswer{405, "text/plain", std::string(1 << 20, 'x'), {}}; });
  EXPECT_EQ(
      Ask(absl::StrCat("POST / HTTP/1.1\r\nContent-Length: 100000\r\n\r\n", std::string(100000, 'b'))).substr(0, 12),
      "HTTP/1.1 405");
}

// Silent clients are never disconnected here, so the answers do not depend on their end.
TEST_F(HttpServerTest, Answer_BesideManyThatSayNothing_Comes) {
  Start({.patience = kNever});
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 100; ++i) {
    silent.push_back(Connect());
    if (i % 2 == 0) Send(silent.back(), "GET /he");
    EXPECT_THAT(Ask(), EndsWith("GET /hello of here")) << i;
  }
  Send(silent[0], "llo HTTP/1.0\r\n\r\n");
  EXPECT_THAT(ReadAll(silent[0]), EndsWith("GET /hello of "));
}

TEST_F(HttpServerTest, Accept_MoreThanMayBeOpen_EndsTheOneThatHasWaitedLongest) {
  Start({.connections = 8, .patience = kNever});
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 50; ++i) {
    silent.push_back(Connect());
    EXPECT_THAT(Ask(), EndsWith("GET /hello of here")) << i;
  }
  for (size_t i = 0; i + 8 < silent.size(); ++i) EXPECT_EQ(ReadAll(silent[i]), "") << i;
  Send(silent.back(), kQuestion);
  EXPECT_THAT(ReadAll(silent.back()), EndsWith("GET /hello of here"));
}

TEST_F(HttpServerTest, Accept_AllWaitForAnswers_EndsARequestThatIsNotUrgent) {
  std::latch begun(1), may_end(1);
  Start({.urgent = [](const HttpRequest& request) { return request.path == "/urgent"; },
         .connections = 3,
         .patience = kNever},
        [&](const HttpRequest& request) {
          if (request.path == "/hello" && !begun.try_wait()) {
            begun.count_down();
            may_end.wait();
          }
          return HttpAnswer{200, "text/plain", request.path, {}};
        });
  const UniqueFd first = Connect();
  Send(first, kQuestion);
  begun.wait();
  const UniqueFd second = Connect(), third = Connect();
  for (const UniqueFd* each : {&second, &third}) Send(*each, "GET /waits HTTP/1.1\r\nHost: here\r\n\r\n");
  EXPECT_THAT(Ask("GET /urgent HTTP/1.1\r\nHost: here\r\n\r\n"), EndsWith("/urgent"));
  may_end.count_down();
  EXPECT_NE(ReadAll(second).empty(), ReadAll(third).empty());
  EXPECT_THAT(ReadAll(first), EndsWith("/hello"));
}

TEST_F(HttpServerTest, Accept_FewFilesMayBeOpen_LeavesThemToOthers) {
  Start({.patience = kNever});
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = 256;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 50; ++i) {
    silent.push_back(Connect());
    EXPECT_THAT(Ask(), EndsWith("GET /hello of here")) << i;
  }
  for (size_t i = 0; i + 16 < silent.size(); ++i) EXPECT_EQ(ReadAll(silent[i]), "") << i;
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST_F(HttpServerTest, Read_AClientThatIsSlow_Ends) {
  Start({.patience = absl::Milliseconds(50)});
  const UniqueFd silent = Connect(), halting = Connect();
  Send(halting, "GET /");
  EXPECT_EQ(ReadAll(silent), "");
  EXPECT_EQ(ReadAll(halting), "");
}

TEST_F(HttpServerTest, Write_AClientThatTakesNothing_Ends) {
  constexpr size_t kBody = size_t{16} << 20;
  Start({.patience = absl::Milliseconds(50)},
        [](const HttpRequest&) { return HttpAnswer{200, "text/plain", std::string(kBody, 'x'), {}}; });
  const UniqueFd fd = Connect(/*receive_bytes=*/4096);
  Send(fd, kQuestion);
  // The server reads none of this, so the loop runs until the connection is closed.
  const std::string piece(65536, 'p');
  while (send(fd.get(), piece.data(), piece.size(), MSG_NOSIGNAL) > 0) {
  }
  EXPECT_LT(ReadAll(fd).size(), kBody);
}

TEST_F(HttpServerTest, Write_AnswersThatNobodyTakes_AreBounded) {
  constexpr size_t kBody = size_t{16} << 20;
  Start({.unread_bytes = 2 * kBody + 4096, .patience = kNever},
        [](const HttpRequest&) { return HttpAnswer{200, "text/plain", std::string(kBody, 'x'), {}}; });
  std::vector<UniqueFd> greedy;
  for (int i = 0; i < 6; ++i) {
    greedy.push_back(Connect(/*receive_bytes=*/4096));
    Send(greedy.back(), kQuestion);
    char byte;
    ASSERT_EQ(recv(greedy.back().get(), &byte, 1, MSG_PEEK), 1) << "its answer has begun";
  }
  std::vector<bool> whole;
  for (const UniqueFd& each : greedy) whole.push_back(ReadAll(each).size() > kBody);
  EXPECT_EQ(std::count(whole.begin(), whole.end(), true), 2);
  EXPECT_TRUE(whole.back());
}

TEST_F(HttpServerTest, End_RequestsUnderWay_AreWaitedFor) {
  std::latch begun(1), go_on(1);
  std::atomic<bool> ended = false;
  Start({.patience = kNever}, [&](const HttpRequest&) {
    begun.count_down();
    go_on.wait();
    ended = true;
    return HttpAnswer{};
  });
  const UniqueFd fd = Connect();
  Send(fd, kQuestion);
  begun.wait();
  std::thread other([&] { go_on.count_down(); });
  server_.reset();
  EXPECT_TRUE(ended);
  other.join();
}

}  // namespace
}  // namespace cairn
