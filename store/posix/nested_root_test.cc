#include "store/posix/nested_root.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;

class NestedRootTest : public ::testing::Test {
 protected:
  NestedRootTest()
      : top_(std::filesystem::canonical(::testing::TempDir()) /
             ::testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::remove_all(top_);
    std::filesystem::create_directories(top_);
  }
  ~NestedRootTest() override { std::filesystem::remove_all(top_); }

  std::string Path(const std::string& name) const { return (top_ / name).string(); }
  void MakeRoot(const std::string& name) {
    std::filesystem::create_directories(top_ / name / ".cairn");
    std::ofstream(top_ / name / ".cairn/epoch") << "epoch 1";
  }
  void ExpectRefused(const std::string& directory, const std::string& other) {
    const absl::Status refused = CheckStandsAlone(directory);
    ASSERT_TRUE(HasReason(refused, Reason::kBadRequest)) << directory << ": " << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr(absl::StrCat("the root ", other, ":")));
    EXPECT_EQ(MetadataOf(refused).at("root"), other);
  }

  const std::filesystem::path top_;
};

TEST_F(NestedRootTest, CheckStandsAlone_BesideOtherRoots_IsFine) {
  MakeRoot("a");
  MakeRoot("b");
  EXPECT_TRUE(CheckStandsAlone(Path("a")).ok()) << "a root of its own";
  EXPECT_TRUE(CheckStandsAlone(Path("a/")).ok());
  EXPECT_TRUE(CheckStandsAlone(Path("new/one")).ok());
  std::filesystem::create_directories(top_ / "c/.cairn");
  EXPECT_TRUE(CheckStandsAlone(Path("c/below")).ok()) << "no coordinator has served c";
}

TEST_F(NestedRootTest, CheckStandsAlone_WithinARoot_NamesIt) {
  MakeRoot("a");
  std::filesystem::create_directories(top_ / "a/team/demo");
  for (const char* inner : {"a/team", "a/team/demo", "a/team/demo/", "a/not/there", "a/team/../x"}) {
    ExpectRefused(Path(inner), Path("a"));
  }
  std::filesystem::create_directory_symlink(top_ / "a/team", top_ / "link");
  ExpectRefused(Path("link"), Path("a"));
}

TEST_F(NestedRootTest, CheckStandsAlone_AroundARoot_NamesIt) {
  MakeRoot("a/Big Team/b");
  ExpectRefused(Path("a"), Path("a/Big Team/b"));
  ExpectRefused(top_.string(), Path("a/Big Team/b"));
  MakeRoot("a");
  ExpectRefused(Path("a"), Path("a/Big Team/b"));
}

TEST_F(NestedRootTest, CheckStandsAlone_WhatNoJobHolds_IsNotEntered) {
  MakeRoot("a/demo/000000000010/x");
  std::filesystem::create_directories(top_ / "elsewhere");
  MakeRoot("other");
  std::filesystem::create_directory_symlink(top_ / "other", top_ / "a/link");
  EXPECT_TRUE(CheckStandsAlone(Path("a")).ok()) << CheckStandsAlone(Path("a"));
}

TEST_F(NestedRootTest, CheckJobOfRoot_AJobOfAnInnerRoot_LeadsToThatRoot) {
  MakeRoot("a/ckpt");
  const absl::Status refused = CheckJobOfRoot(Path("a"), "ckpt/team/demo");
  EXPECT_TRUE(HasReason(refused, Reason::kBadRequest)) << refused;
  EXPECT_EQ(NextActionOf(refused),
            absl::StrCat("Give --root ", Path("a/ckpt"), ", where the job is called team/demo."));
  EXPECT_TRUE(CheckJobOfRoot(Path("a/ckpt"), "team/demo").ok());
  EXPECT_TRUE(CheckJobOfRoot(Path("a"), "team/demo").ok());
}

TEST_F(NestedRootTest, NextAction_IsFollowed_TheDirectoryMayBecomeARoot) {
  MakeRoot("a");
  EXPECT_THAT(NextActionOf(CheckStandsAlone(Path("a/b"))), HasSubstr(absl::StrCat("remove ", Path("a/.cairn"), ".")));
  std::filesystem::remove_all(top_ / "a/.cairn");
  EXPECT_TRUE(CheckStandsAlone(Path("a/b")).ok());
}

}  // namespace
}  // namespace cairn
