#include "common/rpc/token_directory.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <memory>

#include "common/status/reason.h"

namespace {

std::atomic<time_t> clock_is_ahead = 0;  // by so many seconds

}  // namespace

// In the place of the C library's.
extern "C" time_t time(time_t* result) noexcept {
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  const time_t told = now.tv_sec + clock_is_ahead;
  if (result != nullptr) *result = told;
  return told;
}

namespace cairn {
namespace {

constexpr char kAddress[] = "127.0.0.1:7420";
constexpr char kToken[] = "0123456789abcdef";

class TokenDirectoryTest : public testing::Test {
 protected:
  TokenDirectoryTest() {
    base_ = testing::TempDir() + "/runtime-XXXXXX";
    if (mkdtemp(base_.data()) == nullptr) std::abort();
  }
  ~TokenDirectoryTest() override { std::filesystem::remove_all(base_); }

  TokenDirectory Directory(uid_t uid = geteuid()) const { return TokenDirectory({base_}, uid); }
  std::string Own() const { return base_ + "/cairn-" + std::to_string(geteuid()); }
  std::string File() const { return Own() + "/tokens/127.0.0.1_7420"; }
  // Returns why the copy is not used; empty if it is.
  std::string Without() const {
    const auto found = Directory().Find(kAddress);
    EXPECT_EQ(found.tokens.empty(), !found.refused.empty());
    return found.refused.empty() ? "" : found.refused.front();
  }
  static mode_t ModeOf(const std::string& path) {
    struct stat info = {};
    EXPECT_EQ(lstat(path.c_str(), &info), 0) << path;
    return info.st_mode & 07777;
  }

  std::string base_;
};

TEST_F(TokenDirectoryTest, Put_AnySpellingOfTheAddress_IsFoundAndClosedToOthers) {
  const mode_t before = umask(0);
  ASSERT_TRUE(Directory().Put("localhost:7420", kToken, "me").ok());
  umask(before);
  for (const char* address : {"127.0.0.1:7420", "localhost:7420", "[::1]:7420", "ipv4:127.0.0.1:7420"})
    EXPECT_EQ(Directory().Find(address).tokens, std::vector<std::string>{kToken}) << address;
  const auto other = Directory().Find("127.0.0.1:7421");
  EXPECT_TRUE(other.tokens.empty() && other.refused.empty());
  EXPECT_EQ(other.absent, std::vector<std::string>{Own() + "/tokens/127.0.0.1_7421"});
  EXPECT_EQ(ModeOf(File()), 0600u);
  EXPECT_EQ(ModeOf(Own() + "/tokens"), 0700u);
  EXPECT_EQ(ModeOf(Own()), 0700u);
}

TEST_F(TokenDirectoryTest, Find_CopyThatOthersCouldHaveReadOrWritten_IsNotUsed) {
  ASSERT_TRUE(Directory().Put(kAddress, kToken, "me").ok());
  ASSERT_EQ(Without(), "");
  for (const mode_t mode : {0640u, 0604u, 0620u}) {
    chmod(File().c_str(), mode);
    EXPECT_NE(Without().find("can be read by others"), std::string::npos) << Without();
  }
  chmod(File().c_str(), 0600);
  for (const std::string& directory : {Own(), Own() + "/tokens"}) {
    const mode_t mode = ModeOf(directory);
    chmod(directory.c_str(), 0770);
    EXPECT_NE(Without().find("may be written by others"), std::string::npos) << Without();
    EXPECT_TRUE(HasReason(Directory().Put(kAddress, kToken, "me"), Reason::kBadToken));
    chmod(directory.c_str(), mode);
  }
  EXPECT_EQ(Without(), "");
}

TEST_F(TokenDirectoryTest, Find_Links_AreNotFollowed) {
  ASSERT_TRUE(Directory().Put(kAddress, kToken, "me").ok());
  const std::string elsewhere = base_ + "/elsewhere";
  for (const std::string& path : {File(), Own() + "/tokens", Own()}) {
    std::filesystem::rename(path, elsewhere);
    std::filesystem::create_symlink(elsewhere, path);
    EXPECT_NE(Without().find("is a link"), std::string::npos) << Without();
    std::filesystem::remove(path);
    std::filesystem::rename(elsewhere, path);
  }
  EXPECT_EQ(Without(), "");
  // A file with a second name elsewhere could be anybody's.
  std::filesystem::create_hard_link(File(), elsewhere);
  EXPECT_NE(Without(), "");
}

TEST_F(TokenDirectoryTest, Find_DirectoryOfAnotherUser_IsNotBelieved) {
  // This user makes a directory in the name of another user.
  const uid_t other = geteuid() + 1;
  const std::string theirs = base_ + "/cairn-" + std::to_string(other);
  std::filesystem::create_directories(theirs + "/tokens");
  std::ofstream(theirs + "/tokens/127.0.0.1_7420") << kToken << "\nme\n";
  chmod((theirs + "/tokens/127.0.0.1_7420").c_str(), 0600);
  const auto found = Directory(other).Find(kAddress);
  EXPECT_TRUE(found.tokens.empty());
  ASSERT_EQ(found.refused.size(), 1u);
  EXPECT_NE(found.refused[0].find("belongs to user"), std::string::npos) << found.refused[0];
  EXPECT_TRUE(HasReason(Directory(other).Put(kAddress, kToken, "me"), Reason::kBadToken));
}

TEST_F(TokenDirectoryTest, Find_BadFiles_AreNoTokens) {
  ASSERT_TRUE(Directory().Put(kAddress, kToken, "me").ok());
  for (const char* text : {"", "\n", "without a newline"}) {
    std::ofstream(File(), std::ios::trunc) << text;
    EXPECT_NE(Without().find("holds no token"), std::string::npos) << Without();
  }
  std::filesystem::remove(File());
  ASSERT_EQ(mkfifo(File().c_str(), 0600), 0);  // opening it must not wait
  EXPECT_NE(Without().find("is no file"), std::string::npos) << Without();
}

TEST_F(TokenDirectoryTest, Put_FirstBaseIsMissing_TakesTheSecond) {
  const TokenDirectory directory({base_ + "/absent", base_}, geteuid());
  ASSERT_TRUE(directory.Put(kAddress, kToken, "me").ok());
  EXPECT_EQ(directory.Find(kAddress).tokens, std::vector<std::string>{kToken});
  std::filesystem::create_directory(base_ + "/absent");
  ASSERT_TRUE(directory.Put(kAddress, "fedcba9876543210", "me").ok());
  EXPECT_EQ(directory.Find(kAddress).tokens, (std::vector<std::string>{"fedcba9876543210", kToken}));
}

TEST_F(TokenDirectoryTest, Put_OldCopies_AreRemoved) {
  ASSERT_TRUE(Directory().Put(kAddress, kToken, "killed").ok());
  const auto day = std::chrono::hours(25);
  std::filesystem::last_write_time(File(), std::filesystem::file_time_type::clock::now() - day);
  ASSERT_TRUE(Directory().Put("[::1]:7421", kToken, "me").ok());
  EXPECT_FALSE(std::filesystem::exists(File()));
  EXPECT_EQ(Directory().Find("[::1]:7421").tokens, std::vector<std::string>{kToken});
  ASSERT_TRUE(Directory().Put(kAddress, kToken, "me").ok());
  EXPECT_EQ(Directory().Find("[::1]:7421").tokens, std::vector<std::string>{kToken});
}

TEST_F(TokenDirectoryTest, Put_OwnClockIsAhead_CopiesOfOthersStay) {
  ASSERT_TRUE(Directory().Put(kAddress, kToken, "another").ok());
  clock_is_ahead = 48 * 60 * 60;
  ASSERT_TRUE(Directory().Put("[::1]:7421", kToken, "me").ok());
  clock_is_ahead = 0;
  EXPECT_TRUE(std::filesystem::exists(File()));
}

// A loopback socket that listens, or that is only bound: then it refuses connections as long as it lives.
class Socket {
 public:
  Socket(int family, bool listening) : fd_(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in four = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr = in6addr_loopback};
    socklen_t length = family == AF_INET ? sizeof(four) : sizeof(six);
    auto* address = family == AF_INET ? reinterpret_cast<sockaddr*>(&four) : reinterpret_cast<sockaddr*>(&six);
    usable_ = bind(fd_, address, length) == 0 && (!listening || listen(fd_, 1) == 0) &&
              getsockname(fd_, address, &length) == 0;
    const std::string port = ":" + std::to_string(ntohs(family == AF_INET ? four.sin_port : six.sin6_port));
    address_ = (family == AF_INET ? "127.0.0.1" : "[::1]") + port;
  }
  ~Socket() { close(fd_); }
  bool usable() const { return usable_; }
  const std::string& address() const { return address_; }

 private:
  const int fd_;
  bool usable_ = false;
  std::string address_;
};

TEST_F(TokenDirectoryTest, Put_NobodyListensAtAStaleCopysAddress_RemovesTheCopy) {
  const auto put = [&](const std::string& address, std::chrono::minutes age) {
    const std::filesystem::path tokens = Own() + "/tokens";
    ASSERT_TRUE(Directory().Put(address, kToken, "killed").ok());
    std::string name = address;
    std::replace_if(name.begin(), name.end(), [](char c) { return c == ':' || c == '[' || c == ']'; }, '_');
    std::filesystem::last_write_time(tokens / name, std::filesystem::file_time_type::clock::now() - age);
  };
  const auto stands = [&](const std::string& address) { return !Directory().Find(address).tokens.empty(); };
  const Socket served(AF_INET, true), dead(AF_INET, false), fresh(AF_INET, false), six(AF_INET6, false);
  ASSERT_TRUE(served.usable() && dead.usable() && fresh.usable());
  put(served.address(), std::chrono::minutes(11));
  put(fresh.address(), std::chrono::minutes(9));
  put("node-7:7420", std::chrono::minutes(11));  // an address of another machine, about which nothing is known
  if (six.usable()) put(six.address(), std::chrono::minutes(11));
  put(dead.address(), std::chrono::minutes(11));
  EXPECT_TRUE(stands(dead.address()));
  ASSERT_TRUE(Directory().Put(kAddress, kToken, "me").ok());
  EXPECT_FALSE(stands(dead.address()));
  EXPECT_FALSE(six.usable() && stands(six.address()));
  EXPECT_TRUE(stands(served.address()) && stands(fresh.address()) && stands("node-7:7420") && stands(kAddress));
}

TEST_F(TokenDirectoryTest, TokenCopy_AnotherOwner_IsNotRemoved) {
  const auto count = [&] {
    const std::filesystem::directory_iterator files(Own() + "/tokens");
    return std::distance(begin(files), end(files));
  };
  {
    TokenCopy first(Directory(), kAddress);
    ASSERT_TRUE(first.Renew(kToken).ok());
    std::filesystem::remove(File());
    ASSERT_TRUE(first.Renew(kToken).ok());  // after the file was deleted
    EXPECT_EQ(Without(), "");
  }
  EXPECT_EQ(count(), 0);
  auto first = std::make_unique<TokenCopy>(Directory(), kAddress);
  ASSERT_TRUE(first->Renew(kToken).ok());
  TokenCopy second(Directory(), kAddress);  // has the same token, so only the owner tells the two apart
  ASSERT_TRUE(second.Renew(kToken).ok());
  first = nullptr;
  EXPECT_EQ(Without(), "");
  EXPECT_EQ(count(), 1);
}

}  // namespace
}  // namespace cairn
