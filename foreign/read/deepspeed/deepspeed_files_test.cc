#include "foreign/read/deepspeed/deepspeed_files.h"

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
  EXPECT_EQ(files->parts[0].models, Names({kModel}));
  EXPECT_EQ(files->parts[0].optimizers, Names({"bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt",
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
  EXPECT_EQ(files->parts[0].models, models);
  EXPECT_EQ(files->parts[0].optimizers, optimizers);
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

TEST(DeepSpeedFilesTest, Among_Experts_SaysWhatToImportInstead) {
  for (const char* name : {"layer_0_expert_1_mp_rank_00_model_states.pt", "expp_rank_0_mp_rank_00_optim_states.pt",
                           "zero_pp_rank__mp_rank_00_optim_states.pt", "layer_03-model_-model_states.pt",
                           "layer_03-data_00-model_states.pt"}) {
    ExpectRefused({kModel, "zero_pp_rank_0_mp_rank_00_optim_states.pt", name}, Reason::kUnsupported, name);
  }
  EXPECT_NE(MetadataOf(Among({"expert_1_mp_rank_00_model_states.pt"}).status()).at("next").find("ds_to_universal"),
            std::string::npos);
}

// Twelve parts of two ranks, each with its states; the numbers of files have two digits and more.
TEST(DeepSpeedFilesTest, Among_PartsOfAModel_AreByNumber) {
  Names names;
  for (int part = 0; part < 12; ++part) {
    const std::string number = (part < 10 ? "0" : "") + std::to_string(part);
    for (int rank = 0; rank < 2; ++rank) {
      names.insert(names.begin(), "zero_pp_rank_" + std::to_string(rank) + "_mp_rank_" + number + "_optim_states.pt");
    }
    names.push_back("mp_rank_" + number + "_model_states.pt");
  }
  const auto files = Among(names);
  ASSERT_TRUE(files.ok()) << files.status();
  ASSERT_EQ(files->parts.size(), 12u);
  EXPECT_EQ(files->parts[11].models, Names({"mp_rank_11_model_states.pt"}));
  EXPECT_EQ(files->parts[2].optimizers,
            Names({"zero_pp_rank_0_mp_rank_02_optim_states.pt", "zero_pp_rank_1_mp_rank_02_optim_states.pt"}));
  std::erase(names, "zero_pp_rank_1_mp_rank_07_optim_states.pt");
  EXPECT_TRUE(Among(names).ok()) << "what the file of rank 0 says about their number is checked later";
  std::erase(names, "zero_pp_rank_0_mp_rank_07_optim_states.pt");
  ExpectRefused(names, Reason::kFileMissing, "mp_rank_07");
  std::erase(names, "mp_rank_07_model_states.pt");
  ExpectRefused(names, Reason::kFileMissing, "nothing of part 7");
}

TEST(DeepSpeedFilesTest, Among_LayersOfAPipeline_AreByIndexAndSlice) {
  const auto files = Among({"layer_10-model_01-model_states.pt", "layer_02-model_00-model_states.pt", kModel,
                            "zero_pp_rank_0_mp_rank_00_optim_states.pt", "layer_10-model_00-model_states.pt",
                            "layer_100-model_states.pt"});
  ASSERT_TRUE(files.ok()) << files.status();
  ASSERT_EQ(files->layers.size(), 4u);
  EXPECT_EQ(files->layers[0].name, "layer_02-model_00-model_states.pt");
  EXPECT_EQ(files->layers[2].index, 10u);
  EXPECT_EQ(files->layers[2].slice, 1u);
  EXPECT_EQ(files->layers[3].index, 100u);
  ExpectRefused({kModel, "zero_pp_rank_0_mp_rank_00_optim_states.pt", "layer_02-model_00-model_states.pt",
                 "layer_2-model_00-model_states.pt"},
                Reason::kBadForeignFile, "of several saves");
  ExpectRefused({"layer_02-model_00-model_states.pt"}, Reason::kFileMissing, "no *_optim_states.pt");
}

TEST(DeepSpeedFilesTest, Among_NoZero_SaysToImportTheFile) {
  ExpectRefused({kModel}, Reason::kUnsupported, "without ZeRO");
  ExpectRefused({kModel, "mp_rank_01_model_states.pt"}, Reason::kUnsupported, "in parallel parts without ZeRO");
}

TEST(DeepSpeedFilesTest, Among_Universal_NeedsNeitherOptimizersNorAWholeModel) {
  const auto whole = Among({kModel}, true);
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(whole->parts[0].models, Names({kModel}));
  const auto parts = Among({kModel, "mp_rank_01_model_states.pt"}, true);
  ASSERT_TRUE(parts.ok()) << parts.status();
  EXPECT_EQ(parts->parts.size(), 2u);
  for (const char* name :
       {"layer_0_expert_1_mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_01_optim_states.pt"}) {
    const auto others = Among({kModel, name}, true);
    ASSERT_TRUE(others.ok()) << others.status();
    EXPECT_TRUE(others->parts.empty()) << name;
  }
}

TEST(DeepSpeedFilesTest, IsDeepSpeedName_OtherFiles_AreNone) {
  EXPECT_TRUE(IsDeepSpeedName(kModel));
  EXPECT_FALSE(IsDeepSpeedName("model_states.pth"));
  EXPECT_FALSE(IsDeepSpeedName("latest"));
}

}  // namespace
}  // namespace cairn
