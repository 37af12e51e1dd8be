#include "corpus/io/hidden_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "common/file/unique_fd.h"

namespace cairn::corpus {
namespace {

namespace fs = std::filesystem;

bool NoPart(std::string_view) { return false; }

class HiddenFileTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "/hidden-XXXXXX";
    directory_ = mkdtemp(name.data());
  }
  void TearDown() override { fs::remove_all(directory_); }
  std::string Path(const std::string& name) const { return directory_ + "/" + name; }
  void Put(const std::string& name) const { std::ofstream(Path(name)) << "x"; }
  // Locks a file or directory as whoever writes it.
  UniqueFd Hold(const std::string& name) const {
    UniqueFd fd(open(Path(name).c_str(), O_RDONLY | O_CLOEXEC));
    EXPECT_TRUE(LockHidden(fd.get())) << name;
    return fd;
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(directory_)) names.push_back(entry.path().filename());
    return names;
  }

  std::string directory_;
};

TEST_F(HiddenFileTest, RemoveLeftHidden_FilesOfOneOutput_GoUnlessSomebodyHoldsThem) {
  EXPECT_EQ(HiddenName(Path("out.txt"), "0123abcd"), Path(".out.txt.0123abcd.partial"));
  Put(".out.txt.0123abcd.partial");
  Put(".out.txt.4567abcd.partial");
  const UniqueFd held = Hold(".out.txt.4567abcd.partial");
  const std::vector<std::string> others = {"out.txt",
                                           ".out.txt.partial",
                                           ".out.txt.0123abc.partial",
                                           ".out.txt.0123ABCD.partial",
                                           ".out.txt.0123abcd.partial.7",
                                           ".other.txt.0123abcd.partial",
                                           ".out-00000.txt.0123abcd.partial"};
  for (const std::string& name : others) Put(name);
  fs::create_directory(Path(".out.txt.0000abcd.partial"));
  RemoveLeftHidden(Path("out.txt"), NoPart);
  std::vector<std::string> left = others;
  left.insert(left.end(), {".out.txt.4567abcd.partial", ".out.txt.0000abcd.partial"});
  EXPECT_THAT(Names(), testing::UnorderedElementsAreArray(left));
}

TEST_F(HiddenFileTest, RemoveLeftHidden_FilesOfParts_GoUnlessTheirRunOrTheyAreHeld) {
  const auto is_part = [](std::string_view name) { return name.starts_with("out-"); };
  for (const std::string token : {"11111111", "22222222"}) {
    for (const std::string name : {"out", "out-0", "out-1"}) Put("." + name + "." + token + ".partial");
  }
  Put(".out-0.33333333.partial");  // its run has none for all
  Put(".out-0.44444444.partial");  // an output of its own
  const UniqueFd alive = Hold(".out.22222222.partial");
  const UniqueFd other = Hold(".out-0.44444444.partial");
  RemoveLeftHidden(Path("out"), is_part);
  EXPECT_THAT(Names(), testing::UnorderedElementsAre(".out.22222222.partial", ".out-0.22222222.partial",
                                                     ".out-1.22222222.partial", ".out-0.44444444.partial"));
}

TEST_F(HiddenFileTest, LockHidden_TheFileIsGone_SaysSo) {
  Put("file");
  const UniqueFd fd(open(Path("file").c_str(), O_RDONLY | O_CLOEXEC));
  {
    const UniqueFd remover = Hold("file");
    EXPECT_FALSE(LockHidden(fd.get())) << "somebody is about to remove it";
  }
  EXPECT_TRUE(LockHidden(fd.get()));
  unlink(Path("file").c_str());
  EXPECT_FALSE(LockHidden(fd.get()));
}

TEST_F(HiddenFileTest, RemoveLeftDirectories_OfKilledRuns_GoWithAllThatIsInThem) {
  for (const std::string name : {".count-0123abcd", ".count-4567abcd", ".count-31415", ".count-mine", ".count"}) {
    fs::create_directory(Path(name));
    Put(name + "/run");
  }
  const UniqueFd held = Hold(".count-4567abcd");
  RemoveLeftDirectories(directory_, ".count-");
  EXPECT_THAT(Names(), testing::UnorderedElementsAre(".count-4567abcd", ".count-mine", ".count"));
}

}  // namespace
}  // namespace cairn::corpus
