#include "foreign/read/source/foreign_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "common/base/random_id.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;

TEST(IsInStoreTest, IsInStore_PlacesOfBlobs_AreThoseOfTheOwnStore) {
  const std::string snapshot = "/hub/models--a--b/snapshots/f00d";
  EXPECT_TRUE(IsInStore(snapshot, "/hub/models--a--b/blobs/0123"));
  EXPECT_TRUE(IsInStore(snapshot + "/checkpoint-9/global_step9", "/hub/models--a--b/blobs/0123"));
  EXPECT_TRUE(IsInStore("/store/run", "/store/blobs/0123"));
  EXPECT_TRUE(IsInStore("/store/run/step", "/store/blobs/0123"));
  for (const char* outside :
       {"/etc/shadow", "/hub/models--a--c/blobs/0123", "/hub/models--a--b/blobs/sub/0123", "/hub/models--a--b/blobs/",
        "/hub/models--a--b/blobs", "/hub/models--a--b/refs/main", "/blobs/0123",
        "/hub/models--a--b/snapshots/other/0123", "/hub/models--a--b/blobs2/0123"}) {
    EXPECT_FALSE(IsInStore(snapshot, outside)) << outside;
  }
  EXPECT_FALSE(IsInStore("/store/run/step/more", "/store/blobs/0123")) << "that is too far away";
  EXPECT_FALSE(IsInStore("/", "/blobs/0123"));
  EXPECT_FALSE(IsInStore("/run", "/blobs/0123"));
}

class ForeignFileTest : public testing::Test {
 protected:
  ForeignFileTest() {
    fs::create_directories(testing::TempDir());
    top_ = fs::canonical(testing::TempDir()).string() + "/foreign-" + RandomToken(8);
    Put("models--a--b/blobs/0123", "blob");
    Put("secret", "secret");
    directory_ = top_ + "/models--a--b/snapshots/f00d";
    fs::create_directories(directory_);
  }
  ~ForeignFileTest() override { fs::remove_all(top_); }

  void Put(const std::string& name, const std::string& bytes) const {
    const fs::path path = top_ + "/" + name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << bytes;
  }
  void Link(const std::string& target, const std::string& name) const {
    fs::create_symlink(target, directory_ + "/" + name);
  }

  std::string top_, directory_;
};

TEST_F(ForeignFileTest, OpenBelow_ALinkIntoTheStore_IsFollowed) {
  Link("../../blobs/0123", "weights");
  const auto file = ForeignFile::OpenBelow(directory_, "weights");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(*file->Read(0, file->bytes()), "blob");
  EXPECT_EQ(file->path(), top_ + "/models--a--b/blobs/0123");
}

TEST_F(ForeignFileTest, OpenBelow_ALinkElsewhere_IsRefusedWithAdviceThatHelps) {
  Link("../../../secret", "outside");
  // A blob is a file. One that is a link leads where it leads.
  fs::create_symlink("../../secret", top_ + "/models--a--b/blobs/4567");
  Link("../../blobs/4567", "twice");
  for (const char* name : {"outside", "twice"}) {
    const absl::Status error = ForeignFile::OpenBelow(directory_, name).status();
    EXPECT_EQ(ReasonOf(error), Reason::kPathEscape) << error;
    EXPECT_NE(NextActionOf(error).find("cp -rL " + directory_), std::string::npos) << NextActionOf(error);
  }
  fs::copy(directory_, top_ + "/copy", fs::copy_options::recursive);  // which follows links, as `cp -rL` does
  EXPECT_TRUE(ForeignFile::OpenBelow(top_ + "/copy", "outside").ok());
}

}  // namespace
}  // namespace cairn
