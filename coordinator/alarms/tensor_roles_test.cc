#include "coordinator/alarms/tensor_roles.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace cairn {
namespace {

using Kind = TensorRole::Kind;

struct Found {
  Kind kind = Kind::kOther;
  std::string weight;  // empty: none
};

std::map<std::string, Found> Roles(std::vector<std::string> names, DType dtype = DType::kFloat32) {
  std::sort(names.begin(), names.end());
  std::vector<StateSummary::Tensor> tensors;
  for (const std::string& name : names) {
    tensors.emplace_back();
    tensors.back().name = name;
    tensors.back().dtype = dtype;
  }
  const std::vector<TensorRole> roles = RolesOf(tensors);
  std::map<std::string, Found> found;
  for (size_t i = 0; i < names.size(); ++i) {
    const int32_t weight = roles[i].weight;
    found[names[i]] = {roles[i].kind, weight < 0 ? "" : names[static_cast<size_t>(weight)]};
  }
  return found;
}

TEST(TensorRolesTest, NamesOfTorchAndOfMegatron) {
  auto found = Roles({"model.layers.0.w", "optimizer.state.layers.0.w.exp_avg", "optimizer.state.layers.0.w.exp_avg_sq",
                      "optimizer.state.layers.0.w.step"});
  EXPECT_EQ(found["model.layers.0.w"].kind, Kind::kWeight);
  EXPECT_EQ(found["optimizer.state.layers.0.w.exp_avg"].kind, Kind::kMoment);
  EXPECT_EQ(found["optimizer.state.layers.0.w.exp_avg"].weight, "model.layers.0.w");
  EXPECT_EQ(found["optimizer.state.layers.0.w.step"].kind, Kind::kStep);
  EXPECT_EQ(found["optimizer.state.layers.0.w.step"].weight, "model.layers.0.w");
  found = Roles(
      {"module.decoder.w", "optimizer.state.exp_avg.module.decoder.w", "optimizer.state.fp32_param.module.decoder.w"});
  EXPECT_EQ(found["optimizer.state.exp_avg.module.decoder.w"].weight, "module.decoder.w");
  EXPECT_EQ(found["optimizer.state.fp32_param.module.decoder.w"].kind, Kind::kOther);
  found = Roles({"w", "optim.w.momentum_buffer"});
  EXPECT_EQ(found["optim.w.momentum_buffer"].weight, "w");
}

TEST(TensorRolesTest, AMovingAverage) {
  auto found = Roles({"ema.layers.0.w", "model.layers.0.w", "optimizer.state.layers.0.w.exp_avg", "zero.layers.0.w"});
  EXPECT_EQ(found["optimizer.state.layers.0.w.exp_avg"].weight, "model.layers.0.w");
}

TEST(TensorRolesTest, WhatTheNamesDoNotSay) {
  auto found = Roles({"a.w", "b.w", "optimizer.state.w.exp_avg", "optimizer.state.0.exp_avg", "step", "model.step"});
  EXPECT_EQ(found["optimizer.state.w.exp_avg"].kind, Kind::kMoment);
  EXPECT_EQ(found["optimizer.state.w.exp_avg"].weight, "");  // of one of two
  EXPECT_EQ(found["optimizer.state.0.exp_avg"].weight, "");
  EXPECT_EQ(found["step"].kind, Kind::kWeight);  // not an optimizer's
  EXPECT_EQ(Roles({"tokens"}, DType::kInt64)["tokens"].kind, Kind::kOther);
}

TEST(TensorRolesTest, AnOptimizerThatSaysWhatItTrains) {
  auto found = Roles({"model.w", "outer.w", "optimizer.state.w.exp_avg", "outer_optimizer.state.w.momentum_buffer",
                      "outer_optimizer.state.w.step", "outer_optimizer.sizes"});
  EXPECT_EQ(found["optimizer.state.w.exp_avg"].weight, "model.w");
  EXPECT_EQ(found["outer_optimizer.state.w.momentum_buffer"].weight, "outer.w");
  EXPECT_EQ(found["outer_optimizer.state.w.step"].kind, Kind::kStep);
  EXPECT_EQ(found["outer_optimizer.sizes"].kind, Kind::kOther);
  EXPECT_EQ(Roles({"a.w", "b.w", "b_optim.state.w.exp_avg"})["b_optim.state.w.exp_avg"].weight, "b.w");
  EXPECT_EQ(Roles({"model.w", "outer_optimizer.state.w.exp_avg"})["outer_optimizer.state.w.exp_avg"].weight, "model.w");
}

}  // namespace
}  // namespace cairn
