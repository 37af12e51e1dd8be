#include "corpus/io/output_place.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "common/status/reason.h"

namespace cairn::corpus {
namespace {

namespace fs = std::filesystem;

class OutputPlaceTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "/place-XXXXXX";
    directory_ = mkdtemp(name.data());
  }
  void TearDown() override { fs::remove_all(directory_); }
  std::string Path(const std::string& name) const { return directory_ + "/" + name; }
  void Link(const std::string& target, const std::string& name) const {
    ASSERT_EQ(symlink(target.c_str(), Path(name).c_str()), 0);
  }
  OutputPlace Find(const std::string& path) const {
    const auto place = FindOutputPlace(path);
    EXPECT_TRUE(place.ok()) << place.status();
    return place.value_or(OutputPlace{});
  }

  std::string directory_;
};

TEST_F(OutputPlaceTest, Find_ChainOfLinks_IsWhereTheLastOneLeads) {
  fs::create_directory(Path("disk"));
  std::ofstream(Path("disk/real")) << "old";
  Link("disk/second", "first");
  Link("real", "disk/second");
  EXPECT_TRUE(fs::equivalent(Find(Path("first")).path, Path("disk/real")));
  EXPECT_FALSE(fs::is_symlink(Find(Path("first")).path));
  EXPECT_FALSE(Find(Path("first")).stream);
  EXPECT_TRUE(FindReplaceable(Path("first")).ok());
}

TEST_F(OutputPlaceTest, Find_LinkToNothing_IsTheNameThatIsMissing) {
  Link(Path("new"), "link");
  EXPECT_EQ(Find(Path("link")).path, Path("new"));
  EXPECT_EQ(Find(Path("plain")).path, Path("plain"));
}

TEST_F(OutputPlaceTest, Find_LinksInACircle_IsAnError) {
  Link("b", "a");
  Link("a", "b");
  EXPECT_TRUE(HasReason(FindOutputPlace(Path("a")).status(), Reason::kStorageError));
}

TEST_F(OutputPlaceTest, Find_DescriptorOfThisProcess_IsAStreamAlsoIfItIsAFile) {
  const UniqueFd file(open(Path("file").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  const std::string number = std::to_string(file.get());
  Link("/dev/fd/" + number, "link");
  for (const std::string& path : {"/dev/fd/" + number, "/proc/self/fd/" + number, "/proc/thread-self/fd/" + number,
                                  "/proc/" + std::to_string(getpid()) + "/fd/" + number, Path("link")}) {
    const OutputPlace place = Find(path);
    EXPECT_TRUE(place.stream) << path;
    EXPECT_EQ(place.descriptor, file.get()) << path;
    EXPECT_EQ(place.path, path);
    EXPECT_TRUE(HasReason(FindReplaceable(path).status(), Reason::kBadRequest)) << path;
    const auto opened = OpenStream(place);
    ASSERT_TRUE(opened.ok()) << opened.status();
    EXPECT_NE(fcntl(opened->get(), F_GETFL) & O_APPEND, 0) << "it is another open file";
  }
  EXPECT_EQ(Find("-").descriptor, STDOUT_FILENO);
}

TEST_F(OutputPlaceTest, Find_NoRegularFile_IsAStream) {
  ASSERT_EQ(mkfifo(Path("fifo").c_str(), 0600), 0);
  Link("fifo", "link");
  Link("/dev/null", "null");
  for (const char* const name : {"fifo", "link", "null"}) {
    EXPECT_TRUE(Find(Path(name)).stream) << name;
    EXPECT_EQ(Find(Path(name)).descriptor, -1) << name;
    EXPECT_TRUE(HasReason(FindReplaceable(Path(name)).status(), Reason::kBadRequest)) << name;
  }
}

TEST_F(OutputPlaceTest, Find_DirectoryOrLinkToIt_IsRefused) {
  fs::create_directory(Path("d"));
  Link("d", "link");
  for (const std::string& path : {Path("d"), Path("link"), Path("new/")}) {
    EXPECT_TRUE(HasReason(FindOutputPlace(path).status(), Reason::kBadRequest)) << path;
  }
}

TEST_F(OutputPlaceTest, OpenStream_DescriptorThatCannotBeWritten_IsRefused) {
  const UniqueFd reading(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const OutputPlace place = Find("/dev/fd/" + std::to_string(reading.get()));
  EXPECT_TRUE(HasReason(OpenStream(place).status(), Reason::kBadRequest));
  EXPECT_TRUE(
      HasReason(OpenStream({.path = "x", .stream = true, .descriptor = 987'654}).status(), Reason::kBadRequest));
}

TEST_F(OutputPlaceTest, CheckIsNoInput_OneFileUnderTwoNames_IsRefused) {
  for (const char* const name : {"a", "b"}) std::ofstream(Path(name)) << "text";
  Link("a", "link");
  fs::create_hard_link(Path("a"), Path("hard"));
  for (const char* const name : {"a", "link", "hard"}) {
    EXPECT_TRUE(HasReason(CheckIsNoInput(Path(name), Path("a")), Reason::kBadRequest)) << name;
  }
  for (const std::string& output : {Path("b"), Path("new"), std::string("-"), std::string("/dev/null")}) {
    EXPECT_TRUE(CheckIsNoInput(output, Path("a")).ok()) << output;
  }
  EXPECT_TRUE(CheckIsNoInput("/dev/null", "/dev/null").ok());
}

}  // namespace
}  // namespace cairn::corpus
