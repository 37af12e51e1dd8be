#include "coordinator/alarms/state_pairs.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace cairn {
namespace {

StateSummary::Tensor TensorOf(const std::string& name, uint64_t fingerprint, Shape shape = {4}) {
  StateSummary::Tensor tensor;
  tensor.name = name;
  tensor.dtype = DType::kFloat32;
  tensor.shape = std::move(shape);
  tensor.summary.fingerprint_parts = fingerprint;
  tensor.summary.statistics.sum_squares = 4;
  return tensor;
}

TEST(StatePairsTest, MatchesByName) {
  StateSummary before, now;
  before.tensors = {TensorOf("a", 1), TensorOf("b", 1), TensorOf("c", 1), TensorOf("e", 1)};
  now.tensors = {TensorOf("b", 1), TensorOf("c", 1, {2, 2}), TensorOf("d", 1)};
  const StatePairs states = MatchStates(before, now);
  ASSERT_EQ(states.tensors.size(), 3);
  EXPECT_EQ(states.tensors[0].before, &before.tensors[1]);
  EXPECT_EQ(states.tensors[1].before, nullptr);
  EXPECT_EQ(states.tensors[2].before, nullptr);
  ASSERT_EQ(states.other_kinds.size(), 1);
  EXPECT_EQ(now.tensors[states.other_kinds[0].first].name, "c");
  EXPECT_EQ(states.other_kinds[0].second->name, "c");
  EXPECT_EQ(states.roles.size(), 3);
}

TEST(StatePairsTest, HistoriesGoOn) {
  StateSummary before, now;
  before.tensors = {TensorOf("a", 1), TensorOf("b", 1)};
  before.tensors[0].history = {5, 3, 1, 0.5f, 0.25f, {7}, 0};
  before.tensors[1].history = before.tensors[0].history;
  now.tensors = {TensorOf("a", 2), TensorOf("b", 1)};
  now.tensors[0].summary.statistics.sum_squares = 16;
  const StatePairs states = MatchStates(before, now);
  EXPECT_TRUE(states.tensors[0].changed);
  EXPECT_EQ(states.tensors[0].distance, 0.5);  // from a norm of 2 to one of 4
  EXPECT_EQ(now.tensors[0].history, (TensorHistory{6, 0, 3, 0.5f, 0.5f, {1}, 0}));
  EXPECT_FALSE(states.tensors[1].changed);
  EXPECT_EQ(now.tensors[1].history, (TensorHistory{5, 4, 1, 0.5f, 0.25f, {7}, 0}));
}

// Ten steps, and then five.
TEST(StatePairsTest, HowMuchTrainingThereWas) {
  StateSummary before, now;
  before.tensors = {TensorOf("optimizer.state.a.step", 1, {})};
  before.tensors[0].history = {9, 0, 0, 0.1f, 0.1f, {7}, 0};
  before.tensors[0].summary.statistics.max = 100;
  now.tensors = {TensorOf("optimizer.state.a.step", 2, {})};
  now.tensors[0].summary.statistics.max = 105;
  StatePairs states = MatchStates(before, now);
  EXPECT_NEAR(states.counted.value_or(0), 0.5, 1e-6);
  EXPECT_FALSE(states.trained_as_much());
  now.tensors[0].summary.statistics.max = 110;
  states = MatchStates(before, now);
  EXPECT_NEAR(states.counted.value_or(0), 1, 1e-6);
  EXPECT_TRUE(states.trained_as_much());
  before.tensors[0].history.unchanged = 1;
  EXPECT_FALSE(MatchStates(before, now).counted.has_value());
}

// All tensors stood still for three saves, and one for two more.
TEST(StatePairsTest, WhatStoodStillWithTheOthersIsForgiven) {
  StateSummary before, now;
  for (const char* name : {"a", "b", "c"}) {
    before.tensors.push_back(TensorOf(name, 1));
    before.tensors.back().history = {9, 0, 3, 0.5f, 0.25f, {7}, 0};
    now.tensors.push_back(TensorOf(name, 2));
  }
  before.tensors[2].history.unchanged = 2;
  before.tensors[1].history.longest_unchanged = 4;
  const StatePairs states = MatchStates(before, now);
  EXPECT_TRUE(states.tensors[0].steady);
  EXPECT_FALSE(states.tensors[1].steady);
  EXPECT_FALSE(states.tensors[2].steady);
  EXPECT_TRUE(states.tensors[2].was_steady);
  EXPECT_EQ(now.tensors[0].history.longest_unchanged, 3);
  EXPECT_EQ(now.tensors[2].history.longest_unchanged, 4);
}

TEST(StatePairsTest, Objects) {
  StateSummary before, now;
  before.objects = {{"a", false, {1}, {}}, {"b", true, {1, 2}, {}}};
  now.objects = {{"b", true, {1, 3}, {}}, {"c", false, {1}, {}}};
  const StatePairs states = MatchStates(before, now);
  ASSERT_EQ(states.objects.size(), 1);
  EXPECT_EQ(states.objects[0].before, &before.objects[1]);
  EXPECT_TRUE(states.objects[0].changed);
  EXPECT_EQ(now.objects[0].history.changes, 1);
}

TEST(StatePairsTest, WhatReturns) {
  StateSummary before, now;
  before.tensors = {TensorOf("a", 1)};
  before.tensors[0].history.earlier = {2};
  before.objects = {{"loader", false, {1}, {}}};
  StateSummary::Object older = before.objects[0];
  older.crc32c = {2};
  before.objects[0].history.earlier = {7, 8, older.Value()};
  now.tensors = {TensorOf("a", 2)};
  now.objects = {older};
  const StatePairs states = MatchStates(before, now);
  EXPECT_TRUE(states.tensors[0].returned);
  EXPECT_EQ(now.tensors[0].history.returns, 1);
  EXPECT_TRUE(states.objects[0].changed);
  EXPECT_EQ(now.objects[0].history.returns, 1);
  EXPECT_EQ(now.objects[0].history.earlier, (std::array<uint64_t, 3>{before.objects[0].Value(), 7, 8}));
  // Another run counts anew.
  now.line = 2;
  now.objects = {older};
  before.objects[0].history.returns = 1;
  MatchStates(before, now);
  EXPECT_EQ(now.objects[0].history, (ObjectHistory{0, 0, 0, 0, 0, {}, 1}));
}

}  // namespace
}  // namespace cairn
