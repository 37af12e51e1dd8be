#include "common/rpc/token.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

std::string WriteFile(const std::string& name, const std::string& text, mode_t mode) {
  const std::string path = testing::TempDir() + "/" + name;
  std::filesystem::remove(path);
  std::ofstream(path) << text;
  chmod(path.c_str(), mode);
  return path;
}

using Tokens = std::vector<std::string>;

TEST(ReadTokenFileTest, ReadTokenFile_OneOrTwoLines_ReturnsThemInOrder) {
  EXPECT_EQ(*ReadTokenFile(WriteFile("one", "  0123456789abcdef\n\n", 0600)), Tokens{"0123456789abcdef"});
  EXPECT_EQ(*ReadTokenFile(WriteFile("two", "fedcba9876543210\n0123456789abcdef", 0600)),
            (Tokens{"fedcba9876543210", "0123456789abcdef"}));
}

TEST(ReadTokenFileTest, ReadTokenFile_BadFiles_AreRefused) {
  EXPECT_TRUE(HasReason(ReadTokenFile("/nowhere").status(), Reason::kBadToken));
  EXPECT_FALSE(ReadTokenFile(WriteFile("open", "0123456789abcdef\n", 0644)).ok());
  EXPECT_FALSE(ReadTokenFile(WriteFile("short", "0123\n", 0600)).ok());
  EXPECT_FALSE(ReadTokenFile(WriteFile("empty", "", 0600)).ok());
  EXPECT_FALSE(ReadTokenFile(WriteFile("note", "0123456789abcdef\n# a note\n", 0600)).ok());
  EXPECT_FALSE(ReadTokenFile(WriteFile("three", "0123456789abcde1\n0123456789abcde2\n0123456789abcde3", 0600)).ok());
}

TEST(ReadTokenFileTest, ReadTokenFile_NoRegularFileOrAHugeOne_IsRefusedAtOnce) {
  const std::string fifo = testing::TempDir() + "/fifo";
  std::filesystem::remove(fifo);
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  for (const std::string& path : {fifo, testing::TempDir(), std::string("/dev/zero")}) {
    const absl::Status refused = ReadTokenFile(path).status();
    EXPECT_TRUE(HasReason(refused, Reason::kBadToken)) << path;
  }
  const std::string huge = WriteFile("huge", "0123456789abcdef\n", 0600);
  std::filesystem::resize_file(huge, uint64_t{3} << 30);
  EXPECT_TRUE(HasReason(ReadTokenFile(huge).status(), Reason::kBadToken));
}

// A container sees this whose Secret was mounted without a mode.
TEST(ReadTokenFileTest, ReadTokenFile_EveryUserCanRead_SaysWhatIsAcceptedAndWhatToSet) {
  const absl::Status refused = ReadTokenFile(WriteFile("secret", "0123456789abcdef\n", 0644)).status();
  EXPECT_TRUE(absl::StrContains(refused.message(), "mode 0644")) << refused;
  const std::string next = NextActionOf(refused);
  for (const char* part : {"0400", "0600", "0440", "`defaultMode: 0440`", "`fsGroup`", "securityContext."}) {
    EXPECT_TRUE(absl::StrContains(next, part)) << part << ": " << next;
  }
  for (const mode_t mode : {0400, 0600, 0440, 0640}) {
    EXPECT_TRUE(ReadTokenFile(WriteFile("accepted", "0123456789abcdef\n", mode)).ok()) << mode;
  }
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
