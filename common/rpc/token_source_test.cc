#include "common/rpc/token_source.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "common/status/reason.h"

namespace cairn {
namespace {

constexpr char kAddress[] = "127.0.0.1:7420";
constexpr char kToken[] = "0123456789abcdef";

class TokenSourceTest : public testing::Test {
 protected:
  TokenSourceTest() {
    place_ = testing::TempDir() + "/source-XXXXXX";
    if (mkdtemp(place_.data()) == nullptr) std::abort();
    // This base comes before /tmp, and no other test uses it.
    setenv("XDG_RUNTIME_DIR", place_.c_str(), 1);
    root_ = place_ + "/root";
    storage_ = *ConfinedDirectory::Open(root_, true);
  }
  ~TokenSourceTest() override { std::filesystem::remove_all(place_); }

  absl::StatusOr<TokenCandidates> Find(TokenPlaces places) {
    places.address = kAddress;
    return FindTokens(places, TokenDirectory({place_}, geteuid()));
  }
  void PutCopy(const std::string& token) {
    ASSERT_TRUE(TokenDirectory({place_}, geteuid()).Put(kAddress, token, "me").ok());
  }

  std::string place_;
  std::string root_;
  std::unique_ptr<ConfinedDirectory> storage_;
};

TEST_F(TokenSourceTest, MakeRootToken_CalledTwice_MakesOneForItsOwnerAlone) {
  const mode_t before = umask(0);
  const auto tokens = MakeRootToken(*storage_);
  umask(before);
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  ASSERT_EQ(tokens->size(), 1u);
  EXPECT_EQ(tokens->front().size(), 64u);
  EXPECT_EQ(*MakeRootToken(*storage_), *tokens);
  struct stat info = {};
  ASSERT_EQ(stat((root_ + "/.cairn/token").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600u);
  const auto other = ConfinedDirectory::Open(place_ + "/other", true);
  EXPECT_NE(*MakeRootToken(**other), *tokens);
}

TEST_F(TokenSourceTest, MakeRootToken_ItIsBeingChanged_ReturnsTheNewOneFirst) {
  const std::string old = MakeRootToken(*storage_)->front(), fresh(64, 'a');
  std::ofstream(root_ + "/.cairn/token", std::ios::trunc) << fresh << "\n" << old << "\n";
  EXPECT_EQ(*MakeRootToken(*storage_), (std::vector<std::string>{fresh, old}));
  EXPECT_EQ(Find({.root = root_})->tokens, (std::vector<std::string>{fresh, old}));
}

TEST_F(TokenSourceTest, MakeRootToken_TokenIsReadableByOthersOrCut_IsRefused) {
  ASSERT_TRUE(MakeRootToken(*storage_).ok());
  chmod((root_ + "/.cairn/token").c_str(), 0644);
  EXPECT_TRUE(HasReason(MakeRootToken(*storage_).status(), Reason::kBadToken));
  const auto found = Find({.root = root_});
  ASSERT_TRUE(found.ok());
  EXPECT_TRUE(found->tokens.empty());
  EXPECT_NE(found->searched.find("can be read by others"), std::string::npos) << found->searched;
  chmod((root_ + "/.cairn/token").c_str(), 0600);
  for (const std::string& text : {std::string("short"), std::string(63, 'a'), std::string(64, 'x'), std::string()}) {
    std::ofstream(root_ + "/.cairn/token", std::ios::trunc) << text;
    EXPECT_TRUE(HasReason(MakeRootToken(*storage_).status(), Reason::kBadToken)) << text;
  }
}

TEST_F(TokenSourceTest, Find_SeveralTokens_TakesFileThenCopyThenRoot) {
  EXPECT_TRUE(Find({.root = root_})->tokens.empty());
  const std::string of_root = MakeRootToken(*storage_)->front();
  EXPECT_EQ(Find({.root = root_})->tokens, std::vector<std::string>{of_root});
  PutCopy(kToken);
  EXPECT_EQ(Find({.root = root_})->tokens, (std::vector<std::string>{kToken, of_root}));
  EXPECT_EQ(Find({})->tokens, std::vector<std::string>{kToken});
  PutCopy(of_root);
  EXPECT_EQ(Find({.root = root_})->tokens, std::vector<std::string>{of_root});
  const std::string file = place_ + "/given";
  std::ofstream(file) << "fedcba9876543210\n";
  chmod(file.c_str(), 0600);
  EXPECT_EQ(Find({.file = file, .root = root_})->tokens, std::vector<std::string>{"fedcba9876543210"});
  EXPECT_TRUE(HasReason(Find({.file = "/nowhere", .root = root_}).status(), Reason::kBadToken));
  EXPECT_TRUE(Find({.insecure = true, .root = root_})->tokens.empty());
}

TEST_F(TokenSourceTest, Reload_OthersAreFound_UsesThem) {
  const auto source = TokenSource::Open({.address = kAddress, .root = root_});
  ASSERT_TRUE(source.ok());
  EXPECT_TRUE((*source)->tokens().empty());
  EXPECT_EQ((*source)->Keys(ServerRole::kCoordinator), nullptr);
  const absl::Status explained = (*source)->Explain(MakeError(Reason::kBadToken, "the token is wrong"));
  EXPECT_TRUE(HasReason(explained, Reason::kBadToken));
  EXPECT_NE(explained.message().find("nothing is at " + place_ + "/cairn-"), absl::string_view::npos) << explained;

  const std::string of_root = MakeRootToken(*storage_)->front();
  PutCopy(kToken);
  EXPECT_TRUE((*source)->Reload());
  EXPECT_FALSE((*source)->Reload()) << "nothing has changed since";
  EXPECT_EQ((*source)->tokens(), (std::vector<std::string>{kToken, of_root}));
  EXPECT_EQ((*source)->Keys(ServerRole::kCoordinator)->keys().size(), 2u);
  PutCopy("another coordinator's");
  EXPECT_TRUE((*source)->Reload());
  EXPECT_EQ((*source)->tokens(), (std::vector<std::string>{"another coordinator's", of_root}));
}

// A file is missing for a moment while it is replaced.
TEST_F(TokenSourceTest, Reload_FileIsGone_KeepsWhatWasRead) {
  const std::string file = place_ + "/given";
  std::ofstream(file) << kToken << "\n";
  chmod(file.c_str(), 0600);
  const auto source = TokenSource::Open({.file = file});
  ASSERT_TRUE(source.ok());
  std::filesystem::remove(file);
  EXPECT_FALSE((*source)->Reload());
  EXPECT_EQ((*source)->tokens(), std::vector<std::string>{kToken});
}

TEST_F(TokenSourceTest, ReloadSoon_FileHasChanged_IsReadOnAnotherThread) {
  const std::string file = place_ + "/given";
  std::ofstream(file) << kToken << "\n";
  chmod(file.c_str(), 0600);
  const auto source = TokenSource::Open({.file = file});
  ASSERT_TRUE(source.ok());
  std::ofstream(file, std::ios::trunc) << "fedcba9876543210\n" << kToken << "\n";
  (*source)->ReloadSoon();
  while ((*source)->tokens().size() < 2) std::this_thread::yield();
  EXPECT_EQ((*source)->tokens().front(), "fedcba9876543210");
}

}  // namespace
}  // namespace cairn
