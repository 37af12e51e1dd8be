#include "foreign/read/deepspeed/deepspeed_directory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "common/base/random_id.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

class DeepSpeedDirectoryTest : public testing::Test {
 protected:
  DeepSpeedDirectoryTest() {
    std::filesystem::create_directories(testing::TempDir());
    directory_ = std::filesystem::canonical(testing::TempDir()).string() + "/deepspeed-" + RandomToken(8);
    Put("step/mp_rank_00_model_states.pt", "x");
  }
  ~DeepSpeedDirectoryTest() override { std::filesystem::remove_all(directory_); }

  void Put(const std::string& name, const std::string& bytes) const {
    const std::filesystem::path path = directory_ + "/" + name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << bytes;
  }

  std::string directory_;
};

TEST_F(DeepSpeedDirectoryTest, FindDeepSpeedCheckpoint_ItsOwnDirectoryOrTheOneThatLatestNames) {
  EXPECT_EQ(*FindDeepSpeedCheckpoint(directory_ + "/step"), directory_ + "/step");
  EXPECT_EQ(*FindDeepSpeedCheckpoint(directory_), "") << "nothing says that it is the newest";
  Put("latest", "step\n");
  EXPECT_EQ(*FindDeepSpeedCheckpoint(directory_), directory_ + "/step");
  Put("model.safetensors", "x");
  EXPECT_EQ(*FindDeepSpeedCheckpoint(directory_), "") << "a trainer has made these of the checkpoint";
}

TEST_F(DeepSpeedDirectoryTest, FindDeepSpeedCheckpoint_LatestLeavesTheDirectory_IsRefused) {
  std::filesystem::create_directory_symlink("/", directory_ + "/link");
  for (const std::string tag : {"..", "/", "step/../..", "link", ""}) {
    Put("latest", tag);
    EXPECT_EQ(ReasonOf(FindDeepSpeedCheckpoint(directory_).status()), Reason::kPathEscape) << tag;
  }
  Put("latest", "none");
  EXPECT_EQ(ReasonOf(FindDeepSpeedCheckpoint(directory_).status()), Reason::kFileMissing);
}

TEST_F(DeepSpeedDirectoryTest, ReadDeepSpeedDirectory_AFileThatTorchDidNotWrite_IsNamed) {
  Put("step/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt", "x");
  const absl::Status status = ReadDeepSpeedDirectory(directory_ + "/step").status();
  EXPECT_EQ(ReasonOf(status), Reason::kBadForeignFile) << status;
  EXPECT_NE(status.message().find("_states.pt"), absl::string_view::npos) << status;
}

}  // namespace
}  // namespace cairn
