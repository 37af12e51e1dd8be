#include "foreign/read/deepspeed/deepspeed_states.h"

#include <gtest/gtest.h>

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/status/reason.h"
#include "foreign/read/testing/pickle_writer.h"
#include "foreign/read/testing/zip_writer.h"

namespace cairn {
namespace {

using pickle_writer::Attributes;
using pickle_writer::Bool;
using pickle_writer::Call;
using pickle_writer::Dict;
using pickle_writer::Global;
using pickle_writer::Int;
using pickle_writer::Ints;
using pickle_writer::List;
using pickle_writer::None;
using pickle_writer::Persistent;
using pickle_writer::Pickle;
using pickle_writer::Text;
using pickle_writer::Tuple;

// Returns a tensor of float32 in the archive's one storage.
std::string Tensor(const std::vector<int64_t>& shape, const std::vector<int64_t>& strides) {
  const std::string storage =
      Persistent(Tuple({Text("storage"), Global("torch", "FloatStorage"), Text("0"), Text("cpu"), Int(100)}));
  return Call(Global("torch._utils", "_rebuild_tensor_v2"),
              {storage, Int(0), Ints(shape), Ints(strides), Bool(false), Dict({})});
}
std::string Flat(int64_t elements) { return Tensor({elements}, {1}); }

class DeepSpeedStatesTest : public testing::Test {
 protected:
  TorchFile Open(const std::string& value) {
    bytes_ = WriteZip({{"data.pkl", Pickle(value)}, {"byteorder", "little"}, {"data/0", std::string(400, 'x')}},
                      {.padding = 30});
    const ReadRange read = [this](uint64_t offset, uint64_t length) -> absl::StatusOr<std::string> {
      return bytes_.substr(offset, length);
    };
    auto file = TorchFile::Open(bytes_.size(), read, "file");
    EXPECT_TRUE(file.ok()) << file.status();
    return *std::move(file);
  }
  using Pairs = std::vector<std::pair<std::string, std::string>>;
  absl::StatusOr<DeepSpeedModel> Model(const Pairs& pairs) { return ReadDeepSpeedModel(Open(Attributes(pairs))); }
  absl::StatusOr<DeepSpeedOptimizer> Optimizer(const Pairs& pairs) {
    return ReadDeepSpeedOptimizer(Open(Attributes({{"optimizer_state_dict", Attributes(pairs)}})));
  }

  std::string bytes_;
};

TEST_F(DeepSpeedStatesTest, ReadModel_AllThatDeepSpeedWrites_IsFound) {
  const auto model =
      Model({{"module", Attributes({{"w", Tensor({2, 3}, {3, 1})}, {"note", Int(1)}})},
             {"param_shapes", List({Attributes({{"w", Ints({2, 3})}, {"b", Ints({})}}), Attributes({})})},
             {"frozen_param_shapes", Attributes({{"f", Ints({5})}})},
             {"frozen_param_fragments", Attributes({{"f", Flat(3)}})},
             {"shared_params", Attributes({{"tied", Text("w")}})}});
  ASSERT_TRUE(model.ok()) << model.status();
  ASSERT_EQ(model->module.size(), 1u) << "a number is no tensor";
  EXPECT_EQ(model->module.at("w").shape, Shape({2, 3}));
  ASSERT_EQ(model->groups.size(), 2u);
  ASSERT_EQ(model->groups[0].parameters.size(), 2u);
  EXPECT_EQ(model->groups[0].parameters[0].name, "w") << "in the order of the file";
  EXPECT_EQ(model->groups[0].parameters[1].shape, Shape());
  EXPECT_EQ(model->frozen_shapes.at("f"), Shape({5}));
  EXPECT_EQ(model->frozen.at("f").shape, Shape({3}));
  EXPECT_EQ(model->shared, (std::vector<std::pair<std::string, std::string>>{{"tied", "w"}}));
}

TEST_F(DeepSpeedStatesTest, ReadModel_OnlyTheModule_IsEnough) {
  const auto model = Model({{"module", Attributes({})}, {"frozen_param_shapes", None()}, {"param_shapes", None()}});
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_TRUE(model->groups.empty());
}

TEST_F(DeepSpeedStatesTest, ReadModel_NoModuleOrNoShape_IsRefused) {
  EXPECT_TRUE(HasReason(Model({{"model", Attributes({})}}).status(), Reason::kBadForeignFile));
  EXPECT_TRUE(HasReason(
      Model({{"module", Attributes({})}, {"param_shapes", List({Attributes({{"w", Text("2x3")}})})}}).status(),
      Reason::kBadForeignFile));
}

TEST_F(DeepSpeedStatesTest, ReadModel_HowTensorsAreCut_IsFound) {
  const std::string sub = Attributes({{"patterns", List({Text("qkv"), Text("kv")})},
                                      {"shape", Tuple({Tuple({Int(8), Int(4)}), Tuple({Int(2), Int(3)}), Int(-1)})},
                                      {"partition_dim", Int(0)}});
  const std::string info = Attributes({{"universal_checkpoint_version", Int(1)},
                                       {"original_vocab_size", Int(11)},
                                       {"tp_replicated_parameter_patterns", List({Text("norm")})},
                                       {"parameter_with_row_parallelism_patterns", Tuple({Text("down")})},
                                       {"parameter_with_sub_params", List({sub})},
                                       {"sub_param_shard_widths", Attributes({{"qkv", List({Ints({5, 3})})}})},
                                       {"autotp_unsupported_parameter_patterns", Attributes({{"odd", Text("why")}})}});
  const auto model =
      Model({{"module", None()},
             {"buffer_names", List({Text("scale")})},
             {"mp_world_size", Int(6)},
             {"global_steps", Int(7)},
             {"checkpoint_parallel_dimensions", Attributes({{"pp_degree", Int(3)}, {"tp_degree", Int(2)}})},
             {"universal_checkpoint_info", info}});
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->buffers, std::set<std::string>{"scale"});
  EXPECT_EQ(model->stages, 3u);
  EXPECT_EQ(model->slices, 2u);
  EXPECT_EQ(model->parts, 6u);
  EXPECT_EQ(model->steps, 7);
  ASSERT_TRUE(model->parallel.has_value());
  EXPECT_EQ(model->parallel->version, 1);
  EXPECT_EQ(model->parallel->vocabulary, 11);
  EXPECT_EQ(model->parallel->replicated, std::vector<std::string>{"norm"});
  EXPECT_EQ(model->parallel->by_column, std::vector<std::string>{"down"});
  ASSERT_EQ(model->parallel->sub_parameters.size(), 1u);
  EXPECT_EQ(model->parallel->sub_parameters[0].patterns, (std::vector<std::string>{"qkv", "kv"}));
  EXPECT_EQ(model->parallel->sub_parameters[0].sizes, (std::vector<int64_t>{8, 4}));
  EXPECT_EQ(model->parallel->sub_parameters[0].shape, Shape({0, 5, -1}));
  EXPECT_EQ(model->parallel->widths.at("qkv"), (std::vector<std::vector<int64_t>>{{5, 3}}));
  EXPECT_EQ(model->parallel->unsupported.at("odd"), "why");
}

TEST_F(DeepSpeedStatesTest, ReadModel_PatternsOfAnotherKind_AreRefused) {
  const auto refused = [&](const Pairs& info) {
    return HasReason(Model({{"module", None()}, {"universal_checkpoint_info", Attributes(info)}}).status(),
                     Reason::kBadForeignFile);
  };
  EXPECT_TRUE(refused({{"tp_replicated_parameter_patterns", List({Int(1)})}}));
  EXPECT_TRUE(refused({{"parameter_with_sub_params", List({Attributes({{"patterns", List({})}})})}}));
  EXPECT_TRUE(refused(
      {{"parameter_with_sub_params", List({Attributes({{"shape", Tuple({Text("3")})}, {"partition_dim", Int(0)}})})}}));
  EXPECT_TRUE(refused({{"sub_param_shard_widths", Attributes({{"w", List({Int(3)})}})}}));
  const auto empty = Model({{"module", None()}, {"universal_checkpoint_info", Attributes({{"x", Int(1)}})}});
  ASSERT_TRUE(empty.ok()) << empty.status();
  EXPECT_FALSE(empty->parallel.has_value()) << "it says nothing about any cut";
}

TEST_F(DeepSpeedStatesTest, ReadLayer_ItsTensors_AreFound) {
  const auto layer = ReadDeepSpeedLayer(Open(Attributes({{"weight", Tensor({2, 3}, {3, 1})}, {"note", Int(1)}})));
  ASSERT_TRUE(layer.ok()) << layer.status();
  ASSERT_EQ(layer->size(), 1u);
  EXPECT_EQ(layer->at("weight").shape, Shape({2, 3}));
}

TEST_F(DeepSpeedStatesTest, ReadOptimizer_Stage2_HasVectorsStatesAndPaddings) {
  const std::string state = Dict({{Int(0), Attributes({{"step", Tensor({}, {})}, {"exp_avg", Flat(8)}})},
                                  {Int(1), Attributes({{"exp_avg", Flat(2)}})},
                                  {Int(7), Attributes({{"exp_avg", Flat(2)}})}});
  const auto optimizer = Optimizer({{"single_partition_of_fp32_groups", List({Flat(7), Flat(2)})},
                                    {"base_optimizer_state", Attributes({{"state", state}})},
                                    {"partition_count", List({Int(2), Int(3)})},
                                    {"param_alignment_paddings", List({List({Int(0), Int(4)}), List({Int(1)})})}});
  ASSERT_TRUE(optimizer.ok()) << optimizer.status();
  EXPECT_FALSE(optimizer->by_parameter);
  EXPECT_EQ(optimizer->ranks, 3u);
  ASSERT_EQ(optimizer->weights.size(), 2u);
  EXPECT_EQ(optimizer->weights[0].shape, Shape({7}));
  ASSERT_EQ(optimizer->states.size(), 2u) << "there is no group 7";
  EXPECT_EQ(optimizer->states[0].size(), 2u);
  EXPECT_EQ(optimizer->states[0].at("exp_avg").shape, Shape({8}));
  EXPECT_EQ(optimizer->paddings, (std::vector<std::vector<int64_t>>{{0, 4}, {1}}));
}

TEST_F(DeepSpeedStatesTest, ReadOptimizer_StatesInAList_AreByGroup) {
  const auto optimizer = Optimizer({{"single_partition_of_fp32_groups", List({Flat(7)})},
                                    {"base_optimizer_state", List({Attributes({{"exp_avg", Flat(7)}})})}});
  ASSERT_TRUE(optimizer.ok()) << optimizer.status();
  EXPECT_EQ(optimizer->states[0].at("exp_avg").shape, Shape({7}));
  EXPECT_EQ(optimizer->ranks, 0u);
}

TEST_F(DeepSpeedStatesTest, ReadOptimizer_Stage3_IsCutByParameter) {
  const auto optimizer = Optimizer(
      {{"fp32_flat_groups", List({Flat(7)})},
       {"partition_count", Int(2)},
       {"optimizer_state_dict", Attributes({{"state", Dict({{Int(0), Attributes({{"exp_avg", Flat(7)}})}})}})}});
  ASSERT_TRUE(optimizer.ok()) << optimizer.status();
  EXPECT_TRUE(optimizer->by_parameter);
  EXPECT_EQ(optimizer->states[0].at("exp_avg").shape, Shape({7}));
}

TEST_F(DeepSpeedStatesTest, ReadOptimizer_StageAndSteps_AreFound) {
  const std::string state = Dict({{Int(1), Attributes({{"step", Int(9)}, {"exp_avg", Flat(2)}})}});
  for (const std::string& stage : {Int(2), Call(Global("deepspeed.runtime.zero.config", "ZeroStageEnum"), {Int(2)})}) {
    const auto optimizer = Optimizer({{"single_partition_of_fp32_groups", List({Flat(7), Flat(2)})},
                                      {"base_optimizer_state", Attributes({{"state", state}})},
                                      {"zero_stage", stage}});
    ASSERT_TRUE(optimizer.ok()) << optimizer.status();
    EXPECT_EQ(optimizer->stage, 2);
    EXPECT_EQ(optimizer->steps, (std::vector<std::optional<double>>{std::nullopt, 9.0}));
  }
}

TEST_F(DeepSpeedStatesTest, ReadOptimizer_WithoutZeroOrFlatTensors_IsRefused) {
  EXPECT_TRUE(HasReason(Optimizer({{"state", Dict({})}}).status(), Reason::kUnsupported));
  for (const std::string& value : {Tensor({2, 3}, {3, 1}), Tensor({3}, {2}), Int(3)}) {
    EXPECT_TRUE(HasReason(Optimizer({{"fp32_flat_groups", List({value})}}).status(), Reason::kBadForeignFile));
  }
}

// 4,000 groups that are one dict of 1,000 shapes.
TEST_F(DeepSpeedStatesTest, ReadModel_OneDictManyTimes_IsRefused) {
  Pairs shapes;
  for (int i = 0; i < 1000; ++i) shapes.emplace_back("p" + std::to_string(i), Ints({}));
  const std::string keep = "q\x01", again = "h\x01";
  std::vector<std::string> groups(4000, again);
  groups[0] = Attributes(shapes) + keep;
  EXPECT_TRUE(
      HasReason(Model({{"module", Attributes({})}, {"param_shapes", List(groups)}}).status(), Reason::kBadForeignFile));
}

// 2,000 times one text of 100,000 bytes, in each place that keeps texts.
TEST_F(DeepSpeedStatesTest, ReadModel_OneLongTextManyTimes_IsRefused) {
  const std::string keep = Text(std::string(100'000, 'k')) + "q\x01", again = "h\x01";
  const auto many = [&](const std::string& value) {
    std::vector<std::pair<std::string, std::string>> pairs(2000, {again, value});
    pairs[0].first = keep;
    return Dict(pairs);
  };
  std::vector<std::string> texts(2000, again), shapes(2000, "h\x02");
  texts[0] = keep;
  shapes[0] = Dict({{keep, Ints({})}}) + "q\x02";
  const auto refused = [&](const std::string& key, const std::string& value) {
    const absl::Status status = Model({{"module", Attributes({})}, {key, value}}).status();
    EXPECT_TRUE(HasReason(status, Reason::kBadForeignFile)) << key << ": " << status;
  };
  refused("param_shapes", List(shapes));
  refused("frozen_param_shapes", many(Ints({})));
  refused("shared_params", many(again));
  refused("buffer_names", List(texts));
  refused("universal_checkpoint_info", Attributes({{"tp_replicated_parameter_patterns", List(texts)}}));
  refused("universal_checkpoint_info", Attributes({{"autotp_unsupported_parameter_patterns", many(again)}}));
}

}  // namespace
}  // namespace cairn
