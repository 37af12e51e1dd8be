#include "common/rpc/token.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "common/status/reason.h"

namespace cairn {
namespace {

std::string WriteFile(const std::string& name, const std::string& text, mode_t mode) {
  const std::string path = testing::TempDir() + "/" + name;
  std::ofstream(path) << text;
  chmod(path.c_str(), mode);
  return path;
}

TEST(ReadTokenFileTest, ReadTokenFile_SeveralLines_TakesTheFirst) {
  EXPECT_EQ(*ReadTokenFile(WriteFile("good", "  0123456789abcdef\nmore\n", 0600)), "0123456789abcdef");
  EXPECT_EQ(*ReadTokenFile(""), "");
}

TEST(ReadTokenFileTest, ReadTokenFile_BadFiles_AreRefused) {
  EXPECT_TRUE(HasReason(ReadTokenFile("/nowhere").status(), Reason::kBadToken));
  EXPECT_FALSE(ReadTokenFile(WriteFile("open", "0123456789abcdef\n", 0644)).ok());
  EXPECT_FALSE(ReadTokenFile(WriteFile("short", "0123\n", 0600)).ok());
  EXPECT_FALSE(ReadTokenFile(WriteFile("empty", "", 0600)).ok());
}

TEST(TokenMatchesTest, TokenMatches_PartOfTheToken_IsFalse) {
  EXPECT_TRUE(TokenMatches("", "anything"));
  EXPECT_TRUE(TokenMatches("secret", "secret"));
  EXPECT_FALSE(TokenMatches("secret", "secreT"));
  EXPECT_FALSE(TokenMatches("secret", ""));
  EXPECT_FALSE(TokenMatches("secret", "secrets"));
}

}  // namespace
}  // namespace cairn
