#include "coordinator/alarms/movement_rules.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "coordinator/alarms/testing/training.h"

namespace cairn {
namespace {

using MovementRulesTest = AlarmsTest;

TEST_F(MovementRulesTest, ATransposedMatrix) {
  Go();
  training_.Train();
  std::vector<float>& weight = training_["model.layers.4.weight"];
  const std::vector<float> was = weight;
  for (size_t i = 0; i < 32; ++i) {
    for (size_t j = 0; j < 32; ++j) weight[j * 32 + i] = was[i * 32 + j];
  }
  ExpectOne(Save(), alarm::kJump, {"model.layers.4.weight", "changed places"});
}

TEST_F(MovementRulesTest, TwoWeightsThatChangePlaces) {
  Go();
  training_.Train();
  std::swap(training_["model.layers.4.weight"], training_["model.layers.5.weight"]);
  ExpectOne(Save(), alarm::kJump, {"model.layers.*.weight (2)", "changed places"});
}

TEST_F(MovementRulesTest, AWeightThatIsAllZeros) {
  Go();
  training_.Train();
  std::ranges::fill(training_["model.layers.4.weight"], 0.0f);
  ExpectOne(Save(), alarm::kJump, {"all zeros now"});
  training_.moves = [](const std::string& name) { return name != "model.layers.4.weight"; };
  training_.Train();
  EXPECT_TRUE(Save().contains(std::string(alarm::kJump))) << "it is so still";
}

TEST_F(MovementRulesTest, AFlippedBitOfAnExponent) {
  Go();
  training_.Train();
  training_["model.layers.4.weight"][3] = 3.4e37f;
  ExpectOne(Save(), alarm::kJump, {"model.layers.4.weight has an element of 3.4e+37"});
}

// More training lies between two saves than ever before.
TEST_F(MovementRulesTest, SavesAtUnevenDistances) {
  Go(12);
  for (int i = 0; i < 2000; ++i) training_.Train();
  EXPECT_EQ(Save(), None());
}

// All weights are wrong.
TEST_F(MovementRulesTest, AnotherModel) {
  Go();
  training_.Train();
  for (int layer = 0; layer < Training::kLayers; ++layer) {
    std::ranges::reverse(training_["model.layers." + std::to_string(layer) + ".weight"]);
  }
  ExpectOne(Save(), alarm::kJump, {"model.layers.*.weight ("});
}

TEST_F(MovementRulesTest, AWeightThatExplodes) {
  Go();
  training_.Train();
  for (float& value : training_["model.layers.4.weight"]) value *= 40;
  ExpectOne(Save(), alarm::kJump, {"its norm was"});
}

// A training that moves far from the begin on.
TEST_F(MovementRulesTest, ALargeLearningRate) {
  training_.step_size = 0.8f;
  Go(30);
}

}  // namespace
}  // namespace cairn
