#include "foreign/read/deepspeed/deepspeed_parts.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "common/status/reason.h"

namespace cairn {
namespace {

// The parts of a model whose files say `stages` and `slices`, each with the weight "up.weight".
DeepSpeedParts PartsOf(size_t count, uint64_t stages, uint64_t slices) {
  DeepSpeedParts read;
  read.directory = "/old/step";
  for (size_t i = 0; i < count; ++i) {
    DeepSpeedPart& part = read.parts.emplace_back();
    part.models.emplace_back().path = "/old/step/part" + std::to_string(i);
    DeepSpeedModel& model = part.models[0].content;
    model.stages = stages;
    model.slices = slices;
    model.groups.push_back({{{"up.weight", {4, 2}, 0}}});
  }
  return read;
}

TEST(DeepSpeedPartsTest, LearnParallelism_FilesSayIt_PartsAreByStageAndSlice) {
  DeepSpeedParts read = PartsOf(6, 3, 2);
  read.parts[0].models[0].content.parallel.emplace();
  ASSERT_TRUE(read.LearnParallelism({}).ok());
  EXPECT_EQ(read.stages(), 3);
  EXPECT_EQ(read.slices, 2);
  EXPECT_EQ(read.Part(2, 1).models[0].path, "/old/step/part5");
  EXPECT_TRUE(read.rules.has_value());
}

TEST(DeepSpeedPartsTest, LearnParallelism_FilesDoNotSayIt_LayersTellTheSlices) {
  DeepSpeedParts read = PartsOf(4, 0, 0);
  read.parts[0].models[0].content.parallel.emplace();
  DeepSpeedFiles names;
  names.layers = {{0, 0, "a"}, {0, 1, "b"}};
  ASSERT_TRUE(read.LearnParallelism(names).ok());
  EXPECT_EQ(read.stages(), 2);
  read = PartsOf(3, 0, 0);
  EXPECT_EQ(ReasonOf(read.LearnParallelism(names)), Reason::kFileMissing);
}

TEST(DeepSpeedPartsTest, LearnParallelism_FilesContradictEachOther_NamesOne) {
  DeepSpeedParts read = PartsOf(4, 2, 2);
  read.parts[3].models[0].content.slices = 4;
  EXPECT_EQ(ReasonOf(read.LearnParallelism({})), Reason::kBadForeignFile);
  EXPECT_EQ(MetadataOf(read.LearnParallelism({}))["file"], "/old/step/part3");
  EXPECT_EQ(ReasonOf(PartsOf(3, 2, 2).LearnParallelism({})), Reason::kBadForeignFile) << "one part is missing";
}

TEST(DeepSpeedPartsTest, LearnParallelism_NothingSaysHowSlicesMakeUpWeights_NamesThem) {
  const absl::Status status = PartsOf(2, 1, 2).LearnParallelism({});
  EXPECT_EQ(ReasonOf(status), Reason::kUnsupported);
  EXPECT_NE(status.message().find("'up.weight'"), absl::string_view::npos) << status;
  DeepSpeedFiles universal;
  universal.is_universal = true;
  EXPECT_TRUE(PartsOf(2, 1, 2).LearnParallelism(universal).ok());
  EXPECT_TRUE(PartsOf(2, 2, 1).LearnParallelism({}).ok()) << "stages need no patterns";
}

TEST(DeepSpeedPartsTest, LearnParallelism_Experts_AreForUniversalCheckpoints) {
  DeepSpeedParts read = PartsOf(1, 1, 1);
  read.parts[0].models[0].content.has_experts = true;
  EXPECT_EQ(ReasonOf(read.LearnParallelism({})), Reason::kUnsupported);
  DeepSpeedFiles universal;
  universal.is_universal = true;
  EXPECT_TRUE(read.LearnParallelism(universal).ok());
}

TEST(DeepSpeedPartsTest, CheckLayers_ALayerWithoutAFile_IsNamed) {
  DeepSpeedParts read = PartsOf(2, 2, 1);
  DeepSpeedFiles names;
  EXPECT_TRUE(read.CheckLayers(names).ok()) << "no name is that of a layer";
  DeepSpeedModel& model = read.parts[1].models[0].content;
  model.groups[0].parameters = {{"3.up.weight", {4, 2}, 0}, {"tied_modules.embed.weight", {4, 2}, 0}};
  model.frozen_shapes = {{"4.frozen", {2}}};
  model.buffers = {"05.scale"};
  names.layers = {{3, 0, "a"}, {4, 0, "b"}, {5, 0, "c"}};
  EXPECT_TRUE(read.CheckLayers(names).ok()) << read.CheckLayers(names);
  for (const size_t without : {0, 1, 2}) {
    DeepSpeedFiles fewer = names;
    fewer.layers.erase(fewer.layers.begin() + static_cast<std::ptrdiff_t>(without));
    const absl::Status status = read.CheckLayers(fewer);
    EXPECT_EQ(ReasonOf(status), Reason::kFileMissing);
    EXPECT_NE(status.message().find("layer " + std::to_string(without + 3)), absl::string_view::npos) << status;
  }
  model.module["3.up.weight"] = {};
  EXPECT_TRUE(read.CheckLayers({}).ok()) << "it is no pipeline: the file has the module itself";
}

TEST(DeepSpeedPartsTest, MergeParameter_WithoutRules_TakesOneSliceAlone) {
  const DeepSpeedParts read = PartsOf(1, 1, 1);
  StoredSlice slice;
  slice.shape = {4, 2};
  const std::vector<const StoredSlice*> two = {&slice, &slice};
  const auto merged = read.MergeParameter("up.weight", std::span(two).first(1));
  ASSERT_TRUE(merged.ok()) << merged.status();
  EXPECT_EQ(merged->shape, (Shape{4, 2}));
  EXPECT_EQ(ReasonOf(read.MergeParameter("up.weight", two).status()), Reason::kUnsupported);
}

}  // namespace
}  // namespace cairn
