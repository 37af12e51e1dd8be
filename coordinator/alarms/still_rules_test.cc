#include "coordinator/alarms/still_rules.h"

#include <gtest/gtest.h>

#include <string>

#include "coordinator/alarms/testing/training.h"

namespace cairn {
namespace {

using StillRulesTest = AlarmsTest;

TEST_F(StillRulesTest, TheSameStepAgain) {
  Go();
  ExpectOne(Save(), alarm::kSameStep, {"step 8", "32 tensors", "all objects"});
}

// The trainer saves between two steps of the optimizer, as with accumulated gradients: its counters go on.
TEST_F(StillRulesTest, SavesWithinAStepOfTheOptimizer) {
  for (int i = 0; i < 40; ++i) {
    if (i % 4 == 0) training_.Train();
    ++training_.Object("loader")[0];
    EXPECT_EQ(Save(), None()) << i;
  }
}

TEST_F(StillRulesTest, TensorsThatStandStillForLong) {
  Go();
  ++training_.Object("loader")[0];
  EXPECT_EQ(Save(), None());  // a step that was skipped
  ++training_.Object("loader")[0];
  ExpectOne(Save(), alarm::kSameStep, {"for 2 saves"});
  ++training_.Object("loader")[0];
  EXPECT_EQ(Save(), None());  // it was said
}

TEST_F(StillRulesTest, ARankThatHandsOverAnOldCopy) {
  Go();
  const Training old = training_;
  training_.Train();
  ExpectOne(Save(&old, 1), alarm::kStaleRank, {"rank 1 wrote", "step 8", "layers.*.weight (8)"});
}

TEST_F(StillRulesTest, AFrozenOptimizer) {
  Go();
  training_.moves = [](const std::string& name) { return !name.starts_with("optimizer"); };
  training_.Train();
  ExpectOne(Save(), alarm::kFrozenOptimizer, {"model.layers.*.weight (8)"});
}

TEST_F(StillRulesTest, AnExpertWithoutTokens) {
  Go();
  training_.moves = [](const std::string& name) { return name.find("layers.3.") == std::string::npos; };
  Go(10);
}

TEST_F(StillRulesTest, AWeightThatTheOptimizerDoesNotMove) {
  Go();
  training_.moves = [](const std::string& name) { return name != "model.layers.2.weight"; };
  training_.Train();
  ExpectOne(Save(), alarm::kStaleTensor, {"model.layers.2.weight"});
}

// With a learning rate of 0 all weights stand still.
TEST_F(StillRulesTest, ALearningRateOfZero) {
  Go();
  training_.moves = [](const std::string& name) { return !name.starts_with("model"); };
  Go(10);
}

// The names do not say to which weights the state belongs.
TEST_F(StillRulesTest, AFrozenOptimizerWithNumbers) {
  for (int layer = 0; layer < Training::kLayers; ++layer) {
    const std::string name = "optimizer.state.layers." + std::to_string(layer) + ".weight.";
    for (const char* key : {"exp_avg", "exp_avg_sq", "step"}) {
      training_.Rename(name + key, "optimizer.state." + std::to_string(layer) + "." + key);
    }
  }
  Go();
  training_.moves = [](const std::string& name) { return !name.starts_with("optimizer"); };
  training_.Train();
  ExpectOne(Save(), alarm::kFrozenOptimizer, {"optimizer.state.*.exp_avg (8)"});
}

// A layer that has been trained for one save only.
TEST_F(StillRulesTest, TensorsThatHaveJustBegunToMove) {
  training_.moves = [](const std::string& name) { return name.find(".0.") == std::string::npos; };
  Go();
  training_.moves = [](const std::string& name) { return name.find(".0.") != std::string::npos; };
  training_.Train();
  --training_.Object("loader")[0];
  EXPECT_FALSE(Save().contains(std::string(alarm::kSameStep)));
}

}  // namespace
}  // namespace cairn
