#include "cli/commands/mirror_findings.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/base/random_id.h"
#include "store/open/open_storage.h"

namespace cairn::cli {
namespace {

using Level = Finding::Level;

class MirrorFindingsTest : public ::testing::Test {
 protected:
  MirrorFindingsTest() {
    std::filesystem::create_directories(root_);
    std::filesystem::create_directories(mirror_);
    storage_ = OpenStorage(root_, /*create=*/true).value();
  }

  void PutFile(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path) << text;
  }
  std::vector<Finding> Examine(const std::string& mirror, uint64_t state = 0) {
    return ExamineMirror(mirror, root_, storage_.get(), state);
  }
  // Returns the finding of a check; one with an empty text if there is none.
  static Finding Of(const std::vector<Finding>& findings, const std::string& check) {
    for (const Finding& finding : findings) {
      if (finding.check == check) return finding;
    }
    return {};
  }

  const std::string top_ =
      std::filesystem::canonical(::testing::TempDir()).string() + absl::StrCat("/mirror-", RandomToken(6));
  const std::string root_ = top_ + "/root", mirror_ = top_ + "/mirror";
  std::unique_ptr<Storage> storage_;
};

TEST_F(MirrorFindingsTest, EmptyPlace_IsFineAndHeldByNobody) {
  const auto found = Examine(mirror_ + "/");
  EXPECT_EQ(Of(found, "mirror").level, Level::kOk);
  EXPECT_NE(Of(found, "mirror owner").text.find("is empty"), std::string::npos);
  EXPECT_EQ(Of(found, "mirror holder").level, Level::kNote);
  EXPECT_NE(Of(found, "mirror free space").text, "");
  EXPECT_NE(Of(found, "mirror clock").text, "");
}

TEST_F(MirrorFindingsTest, MirrorOfThisRoot_IsFine) {
  PutFile(mirror_ + "/.cairn/mirror-of", root_ + "\n");
  PutFile(mirror_ + "/demo/000000000001/0001.verdict", "x");
  const Finding owner = Of(Examine(mirror_), "mirror owner");
  EXPECT_EQ(owner.level, Level::kOk) << owner.text;
  std::filesystem::create_directory_symlink(root_, top_ + "/link");
  EXPECT_EQ(Of(ExamineMirror(mirror_, top_ + "/link", storage_.get(), 0), "mirror owner").level, Level::kOk)
      << "the file has the name without links";
  EXPECT_EQ(Of(ExamineMirror(mirror_, "", nullptr, 0), "mirror owner").level, Level::kNote) << "nothing to compare";
}

TEST_F(MirrorFindingsTest, MirrorOfAnotherRoot_IsAFaultAndNothingIsWritten) {
  PutFile(mirror_ + "/.cairn/mirror-of", "/elsewhere\n");
  const auto found = Examine(mirror_);
  const Finding owner = Of(found, "mirror owner");
  EXPECT_EQ(owner.level, Level::kFault);
  EXPECT_NE(owner.text.find("/elsewhere"), std::string::npos);
  EXPECT_NE(owner.next.find(mirror_ + "/.cairn/mirror-of"), std::string::npos) << owner.next;
  EXPECT_EQ(Of(found, "mirror").text, "") << "a foreign place was probed";
  const auto mirror = OpenStorage(mirror_, /*create=*/true).value();
  const auto lock = mirror->TakeRoot().value();
  EXPECT_EQ(Of(Examine(mirror_), "mirror holder").level, Level::kOk) << "nobody should end the other's coordinator";
}

TEST_F(MirrorFindingsTest, OwnerWithoutTheEndOfItsLine_IsFine) {
  PutFile(mirror_ + "/.cairn/mirror-of", root_);
  const Finding owner = Of(Examine(mirror_), "mirror owner");
  EXPECT_EQ(owner.level, Level::kOk) << owner.text;
}

TEST_F(MirrorFindingsTest, PlaceWithOtherFiles_IsAFault) {
  PutFile(mirror_ + "/notes.txt", "x");
  const Finding owner = Of(Examine(mirror_), "mirror owner");
  EXPECT_EQ(owner.level, Level::kFault);
  EXPECT_NE(owner.text.find("notes.txt"), std::string::npos);
}

TEST_F(MirrorFindingsTest, PlaceThatCannotBeAMirror_IsAFault) {
  for (const std::string& place : {root_ + "/below", root_, top_, std::string("relative"), std::string("az://b/p"),
                                   std::string("s3://models/llm?region=x")}) {
    const Finding found = Of(Examine(place), "mirror");
    EXPECT_EQ(found.level, Level::kFault) << place;
    EXPECT_FALSE(found.text.empty()) << place;
  }
  std::filesystem::create_directory_symlink(root_, top_ + "/link");
  EXPECT_EQ(Of(Examine(top_ + "/link"), "mirror").level, Level::kFault) << "a link to the root";
  PutFile(top_ + "/file", "x");
  EXPECT_EQ(Of(Examine(top_ + "/file"), "mirror").level, Level::kFault);
}

TEST_F(MirrorFindingsTest, MissingDirectory_IsAWarningAndIsNotMade) {
  const Finding found = Of(Examine(top_ + "/absent"), "mirror");
  EXPECT_EQ(found.level, Level::kWarning);
  EXPECT_FALSE(std::filesystem::exists(top_ + "/absent"));
}

TEST_F(MirrorFindingsTest, Holder_IsNamedAndComparedWithThatOfTheRoot) {
  const auto mirror = OpenStorage(mirror_, /*create=*/true).value();
  const auto lock = mirror->TakeRoot().value();
  const Finding alone = Of(Examine(mirror_), "mirror holder");
  EXPECT_EQ(alone.level, Level::kWarning) << "nobody holds the root";
  EXPECT_NE(alone.text.find(absl::StrCat("process ", getpid())), std::string::npos) << alone.text;
  const auto roots = storage_->TakeRoot().value();
  EXPECT_EQ(Of(Examine(mirror_), "mirror holder").level, Level::kOk);
  ASSERT_TRUE(lock->TellAddress("127.0.0.1:7").ok());
  const Finding served = Of(Examine(mirror_), "mirror holder");
  EXPECT_EQ(served.level, Level::kFault) << served.text;
  EXPECT_NE(served.text.find("127.0.0.1:7"), std::string::npos) << served.text;
}

TEST_F(MirrorFindingsTest, LittleRoom_NamesTheFlagThatKeepsFewerCopies) {
  const Finding room = Of(Examine(mirror_, uint64_t{1} << 60), "mirror free space");
  EXPECT_EQ(room.level, Level::kFault);
  EXPECT_NE(room.next.find("--mirror-keep-last"), std::string::npos) << room.next;
}

}  // namespace
}  // namespace cairn::cli
