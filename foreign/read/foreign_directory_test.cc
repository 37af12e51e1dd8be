#include "foreign/read/foreign_directory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "common/base/random_id.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

class ForeignDirectoryTest : public testing::Test {
 protected:
  ForeignDirectoryTest() : directory_(testing::TempDir() + "/import-" + RandomToken(6)) {
    std::filesystem::create_directories(directory_);
  }
  ~ForeignDirectoryTest() override { std::filesystem::remove_all(directory_); }

  std::string Put(const std::string& name, const std::string& bytes) const {
    std::ofstream(directory_ + "/" + name) << bytes;
    return directory_ + "/" + name;
  }

  std::string directory_;
};

TEST_F(ForeignDirectoryTest, Path_NotAbsolute_IsRefused) {
  for (const std::string& path : {std::string(), std::string("models/llama"), std::string("/a\0b", 4)}) {
    EXPECT_EQ(ReasonOf(ReadForeignDirectory(path).status()), Reason::kBadRequest);
  }
}

TEST_F(ForeignDirectoryTest, Path_NothingThere_AdviceIsToCheckIt) {
  const absl::Status error = ReadForeignDirectory(directory_ + "/none").status();
  EXPECT_EQ(ReasonOf(error), Reason::kFileMissing);
  EXPECT_NE(NextActionOf(error).find("Check the path"), std::string::npos);
}

TEST_F(ForeignDirectoryTest, Path_OneSafetensorsFile_AdviceIsItsDirectory) {
  const absl::Status error = ReadForeignDirectory(Put("model.safetensors", "x")).status();
  EXPECT_EQ(ReasonOf(error), Reason::kBadRequest);
  EXPECT_NE(NextActionOf(error).find("directory that the file is in"), std::string::npos);
}

// The reader of each kind is chosen by what stands in the directory.
TEST_F(ForeignDirectoryTest, Directory_OfEachKind_ItsReaderNamesItsFile) {
  Put("model.safetensors", "x");
  EXPECT_NE(ReadForeignDirectory(directory_).status().message().find("model.safetensors"), absl::string_view::npos);
  Put(".snapshot_metadata", "{");
  EXPECT_NE(ReadForeignDirectory(directory_).status().message().find(".snapshot_metadata"), absl::string_view::npos);
  Put(".metadata", "x");
  const absl::string_view dcp = "/.metadata";
  EXPECT_NE(ReadForeignDirectory(directory_).status().message().find(dcp), absl::string_view::npos);
}

// `cairn verify` knows checkpoints of Cairn alone.
TEST_F(ForeignDirectoryTest, Directory_LacksAFileOrIsDamaged_AdviceIsNotToVerify) {
  Put("model.safetensors.index.json", R"({"weight_map":{"a":"gone.safetensors"}})");
  const absl::Status missing = ReadForeignDirectory(directory_).status();
  EXPECT_EQ(ReasonOf(missing), Reason::kFileMissing);
  EXPECT_NE(NextActionOf(missing).find("another copy"), std::string::npos) << NextActionOf(missing);
  Put("gone.safetensors", "1234");
  const absl::Status damaged = ReadForeignDirectory(directory_).status();
  EXPECT_EQ(ReasonOf(damaged), Reason::kBadSafetensors);
  EXPECT_NE(NextActionOf(damaged).find("another copy"), std::string::npos) << NextActionOf(damaged);
}

TEST_F(ForeignDirectoryTest, File_OfNoKnownKind_IsNamed) {
  const std::string path = Put("state.pt", "no archive of torch");
  const absl::Status error = ReadForeignDirectory(path).status();
  EXPECT_EQ(ReasonOf(error), Reason::kBadForeignFile) << error;
  EXPECT_NE(error.message().find("state.pt"), absl::string_view::npos) << error;
}

}  // namespace
}  // namespace cairn
