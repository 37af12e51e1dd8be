#include "cli/local/agent_scrape.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/base/random_id.h"
#include "common/file/unique_fd.h"

namespace cairn::cli {
namespace {

// Only a failing test waits this long.
constexpr absl::Duration kLong = absl::Seconds(20);

// A Unix socket that listens; whoever connects waits until Answer.
class Socket {
 public:
  Socket() : path_(absl::StrCat("/tmp/scrape-", RandomId(), ".sock")) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path_.data(), path_.size());
    fd_ = UniqueFd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(bind(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(listen(fd_.get(), 8), 0);
  }
  ~Socket() { unlink(path_.c_str()); }

  // Answers one connection on another thread, and closes it.
  std::thread Answer(const std::string& bytes) {
    return std::thread([this, bytes] {
      const UniqueFd client(accept(fd_.get(), nullptr, nullptr));
      char question[256];
      EXPECT_GT(recv(client.get(), question, sizeof(question), 0), 0);
      EXPECT_EQ(send(client.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
    });
  }
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
  UniqueFd fd_;
};

TEST(ScrapeAgentsTest, ScrapeAgents_AllAnswer_EachHasItsRank) {
  Socket first, second;
  std::thread one = first.Answer("HTTP/1.1 200 OK\r\nA: b\r\n\r\nup 1\n");
  std::thread two = second.Answer("HTTP/1.1 200 OK\r\n\r\nup 2\n");
  const auto texts = ScrapeAgents({{8, first.path()}, {9, second.path()}}, kLong);
  one.join();
  two.join();
  ASSERT_EQ(texts.size(), 2);
  EXPECT_EQ(texts[0].label, "rank=\"8\"");
  EXPECT_EQ(texts[0].text, "up 1\n");
  EXPECT_EQ(texts[1].label, "rank=\"9\"");
  EXPECT_EQ(texts[1].text, "up 2\n");
}

TEST(ScrapeAgentsTest, ScrapeAgents_OneIsNotThereOneRefusesOneIsStopped_TheOthersAreGiven) {
  Socket answers, refuses, silent;
  std::thread one = answers.Answer("HTTP/1.1 200 OK\r\n\r\nup 1\n");
  std::thread two = refuses.Answer("HTTP/1.1 503 Service Unavailable\r\n\r\nno memory\n");
  const auto texts = ScrapeAgents({{0, "/nowhere/metrics.sock"},
                                   {1, refuses.path()},
                                   {2, answers.path()},
                                   {3, silent.path()},
                                   {4, std::string(200, 'x')}},
                                  absl::Milliseconds(300));
  one.join();
  two.join();
  ASSERT_EQ(texts.size(), 1);
  EXPECT_EQ(texts[0].label, "rank=\"2\"");
}

}  // namespace
}  // namespace cairn::cli
