#include "import/deepspeed_files.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/status/reason.h"

namespace cairn {
namespace {

using Names = std::vector<std::string>;

const char kModel[] = "mp_rank_00_model_states.pt";

absl::StatusOr<DeepSpeedFiles> Among(const Names& names, bool is_universal = false) {
  return DeepSpeedFilesAmong(names, is_universal, "/checkpoint");
}
void ExpectRefused(const Names& names, Reason reason, const std::string& text) {
  const auto files = Among(names);
  EXPECT_TRUE(HasReason(files.status(), reason)) << files.status();
  EXPECT_NE(files.status().message().find(text), std::string::npos) << files.status();
}

TEST(DeepSpeedFilesTest, Among_Stage2_FindsOneModelAndARankEach) {
  const auto files = Among({"latest", kModel, "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt",
                            "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt"});
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_EQ(files->models, Names({kModel}));
  EXPECT_EQ(files->optimizers, Names({"bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt",
                                      "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"}));
}

TEST(DeepSpeedFilesTest, Among_Stage3WithElevenRanks_OrdersByNumber) {
  Names names, models, optimizers;
  for (int rank = 0; rank < 11; ++rank) {
    const std::string stem = "zero_pp_rank_" + std::to_string(rank) + "_mp_rank_00";
    models.push_back(stem + "_model_states.pt");
    optimizers.push_back(stem + "_optim_states.pt");
    names.insert(names.begin(), {models.back(), optimizers.back()});
  }
  const auto files = Among(names);
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_EQ(files->models, models);
  EXPECT_EQ(files->optimizers, optimizers);
}

TEST(DeepSpeedFilesTest, Among_ARankIsMissing_IsNamed) {
  ExpectRefused({kModel, "zero_pp_rank_0_mp_rank_00_optim_states.pt", "zero_pp_rank_2_mp_rank_00_optim_states.pt"},
                Reason::kFileMissing, "none of rank 1");
  ExpectRefused({"zero_pp_rank_0_mp_rank_00_optim_states.pt"}, Reason::kFileMissing, "1 *_optim_states.pt and 0");
  ExpectRefused({"zero_pp_rank_0_mp_rank_00_model_states.pt"}, Reason::kFileMissing, "no *_optim_states.pt");
}

TEST(DeepSpeedFilesTest, Among_TwoSaves_IsRefused) {
  ExpectRefused({kModel, "zero_pp_rank_0_mp_rank_00_optim_states.pt", "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt"},
                Reason::kBadForeignFile, "of several saves");
}

TEST(DeepSpeedFilesTest, Among_PartsOfAModel_SaysWhatToImportInstead) {
  for (const char* name : {"mp_rank_01_model_states.pt", "layer_03-model_00-model_states.pt",
                           "layer_0_expert_1_mp_rank_00_model_states.pt", "expp_rank_0_mp_rank_00_optim_states.pt",
                           "zero_pp_rank_0_mp_rank_01_optim_states.pt", "zero_pp_rank__mp_rank_00_optim_states.pt"}) {
    ExpectRefused({kModel, "zero_pp_rank_0_mp_rank_00_optim_states.pt", name}, Reason::kUnsupported, name);
  }
  EXPECT_NE(MetadataOf(Among({"mp_rank_01_model_states.pt"}).status()).at("next").find("ds_to_universal"),
            std::string::npos);
}

TEST(DeepSpeedFilesTest, Among_NoZero_SaysToImportTheFile) {
  ExpectRefused({kModel}, Reason::kUnsupported, "without ZeRO");
}

TEST(DeepSpeedFilesTest, Among_Universal_NeedsNeitherOptimizersNorAWholeModel) {
  const auto whole = Among({kModel}, true);
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(whole->models, Names({kModel}));
  const auto parts = Among({kModel, "mp_rank_01_model_states.pt"}, true);
  ASSERT_TRUE(parts.ok()) << parts.status();
  EXPECT_TRUE(parts->models.empty());
}

TEST(DeepSpeedFilesTest, IsDeepSpeedName_OtherFiles_AreNone) {
  EXPECT_TRUE(IsDeepSpeedName(kModel));
  EXPECT_FALSE(IsDeepSpeedName("model_states.pth"));
  EXPECT_FALSE(IsDeepSpeedName("latest"));
}

}  // namespace
}  // namespace cairn
