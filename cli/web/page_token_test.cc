#include "cli/web/page_token.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "common/status/reason.h"

namespace cairn::cli {
namespace {

constexpr char kListen[] = "127.0.0.1:7430";

class PageTokenTest : public testing::Test {
 protected:
  PageTokenTest() {
    std::string pattern = "/tmp/page-token-XXXXXX";
    base_ = mkdtemp(pattern.data());
    setenv("XDG_RUNTIME_DIR", base_.c_str(), 1);
  }
  ~PageTokenTest() override { std::filesystem::remove_all(base_); }

  static std::string TokenOf(const std::string& listen) {
    const auto opened = PageToken::Open(listen, "");
    EXPECT_TRUE(opened.ok()) << opened.status();
    return opened.ok() ? (*opened)->token() : "";
  }

  std::string base_;
};

TEST_F(PageTokenTest, Open_TheSamePortAgain_HasTheSameToken) {
  const std::string first = TokenOf(kListen);
  EXPECT_GE(first.size(), 16U);
  EXPECT_EQ(TokenOf(kListen), first);
  EXPECT_NE(TokenOf("127.0.0.1:7431"), first) << "another page";
}

TEST_F(PageTokenTest, Open_AnyFreePort_HasANewTokenAndLeavesNone) {
  std::string file;
  {
    const auto opened = PageToken::Open("127.0.0.1:0", "");
    ASSERT_TRUE(opened.ok()) << opened.status();
    file = (*opened)->file();
    EXPECT_TRUE(std::filesystem::exists(file));
  }
  EXPECT_FALSE(std::filesystem::exists(file));
  EXPECT_NE(TokenOf("127.0.0.1:0"), TokenOf("127.0.0.1:0"));
}

TEST_F(PageTokenTest, Open_TheFile_IsReadableByThisUserOnly) {
  const auto opened = PageToken::Open(kListen, "");
  ASSERT_TRUE(opened.ok()) << opened.status();
  struct stat info;
  ASSERT_EQ(stat((*opened)->file().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
}

// Whoever could read it may know the token, so it is worth nothing any more.
TEST_F(PageTokenTest, Open_OthersMayReadTheKeptFile_MakesANewOne) {
  std::string file, token;
  {
    const auto opened = PageToken::Open(kListen, "");
    ASSERT_TRUE(opened.ok()) << opened.status();
    file = (*opened)->file();
    token = (*opened)->token();
  }
  ASSERT_EQ(chmod(file.c_str(), 0644), 0);
  EXPECT_NE(TokenOf(kListen), token);
  struct stat info;
  ASSERT_EQ(stat(file.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
}

TEST_F(PageTokenTest, Open_AFileOfTheUsersOwn_IsOnlyRead) {
  const std::string file = base_ + "/token";
  std::ofstream(file) << "mine-0123456789abcdef\n";
  ASSERT_EQ(chmod(file.c_str(), 0600), 0);
  {
    const auto opened = PageToken::Open("127.0.0.1:0", file);
    ASSERT_TRUE(opened.ok()) << opened.status();
    EXPECT_EQ((*opened)->token(), "mine-0123456789abcdef");
  }
  EXPECT_TRUE(std::filesystem::exists(file));
  EXPECT_TRUE(HasReason(PageToken::Open(kListen, base_ + "/none").status(), Reason::kBadToken));
}

}  // namespace
}  // namespace cairn::cli
