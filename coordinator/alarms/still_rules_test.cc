#include "coordinator/alarms/still_rules.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

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

// A rank keeps an old copy of its optimizer's moments, or of its weights, and nothing else.
TEST_F(StillRulesTest, ARankWhoseMomentsAreOld) {
  Go();
  const Training old = training_;
  training_.Train();
  training_.hands_over = [](const std::string& name) { return name.find("exp_avg") != std::string::npos; };
  // Rank 0 has no steps, whose only element is rank 1's.
  ExpectOne(Save(&old, 0), alarm::kStaleRank, {"rank 0 wrote", "of these tensors", "weight.exp_avg (8)"});
}

TEST_F(StillRulesTest, ARankWhoseWeightsAreOld) {
  Go();
  const Training old = training_;
  training_.Train();
  training_.hands_over = [](const std::string& name) { return name.starts_with("model"); };
  ExpectOne(Save(&old, 0), alarm::kStaleRank, {"rank 0 wrote", "of these tensors", "model.layers.*.weight (8)"});
}

TEST_F(StillRulesTest, ARankWithoutUpdatesOfOneTensor) {
  Go();
  const Training old = training_;
  training_.Train();
  training_.hands_over = [](const std::string& name) { return name == "model.layers.3.weight"; };
  EXPECT_EQ(Save(&old, 0), None());
}

TEST_F(StillRulesTest, OneKindOfMoments) {
  Go();
  training_.moves = [](const std::string& name) { return !name.ends_with(".exp_avg_sq"); };
  training_.Train();
  ExpectOne(Save(), alarm::kFrozenOptimizer, {"for all weights", "exp_avg_sq"});
}

TEST_F(StillRulesTest, StepsAlone) {
  Go();
  training_.moves = [](const std::string& name) { return !name.ends_with(".step"); };
  training_.Train();
  ExpectOne(Save(), alarm::kFrozenOptimizer, {": step"});
}

// The moments of one weight underflow, for which there are no gradients.
TEST_F(StillRulesTest, OneMomentOfOneWeight) {
  Go();
  training_.moves = [](const std::string& name) { return name != "optimizer.state.layers.2.weight.exp_avg"; };
  Go(3);
}

TEST_F(StillRulesTest, AllWeightsAreOld) {
  Go();
  training_.moves = [](const std::string& name) { return !name.starts_with("model"); };
  training_.Train();
  ExpectOne(Save(), alarm::kStaleTensor, {"model.layers.*.weight (8)"});
  Go(5);  // it was said
}

// The rate falls to 0, and stays there.
TEST_F(StillRulesTest, ALearningRateThatFallsToZero) {
  for (int save = 0; save < 20; ++save) {
    training_.step_size = 0.01f * static_cast<float>(20 - save) / 20;
    Go(1);
  }
  training_.moves = [](const std::string& name) { return !name.starts_with("model"); };
  Go(10);
}

TEST_F(StillRulesTest, AveragesThatStandStill) {
  for (int layer = 0; layer < Training::kLayers; ++layer) {
    const std::string name = "layers." + std::to_string(layer) + ".weight";
    training_.Add("ema." + name, training_["model." + name]);
  }
  Go();
  training_.moves = [](const std::string& name) { return !name.starts_with("ema."); };
  training_.Train();
  ExpectOne(Save(), alarm::kStaleTensor, {"averages of weights", "ema.layers.*.weight (8)"});
}

TEST_F(StillRulesTest, RunningStatisticsThatStandStill) {
  training_.Add("model.norm.running_mean", training_["model.layers.0.weight"]);
  training_.Add("model.norm.running_var", training_["model.layers.1.weight"]);
  Go();
  training_.moves = [](const std::string& name) { return name.find("running") == std::string::npos; };
  training_.Train();
  ExpectOne(Save(), alarm::kStaleTensor, {"running statistics", "model.norm.running_mean, model.norm.running_var"});
}

// They are updated now and then.
TEST_F(StillRulesTest, AveragesOfSomeSteps) {
  training_.Add("ema.weight", training_["model.layers.0.weight"]);
  for (int save = 0; save < 30; ++save) {
    training_.moves = [&](const std::string& name) { return save % 3 == 0 || !name.starts_with("ema."); };
    Go(1);
  }
}

TEST_F(StillRulesTest, BytesOfTwoSavesBefore) {
  Go();
  const std::vector<float> old = training_["model.layers.3.weight"];
  training_.Train();
  EXPECT_EQ(Save(), None());
  training_.Train();
  training_["model.layers.3.weight"] = old;
  ExpectOne(Save(), alarm::kReturned, {"before step 9: model.layers.3.weight"});
}

// A program keeps two buffers, which take turns.
TEST_F(StillRulesTest, ATensorThatTakesTurns) {
  const std::vector<float> even = training_["model.layers.3.weight"], odd = training_["model.layers.4.weight"];
  training_.Add("model.queue", even);
  training_.moves = [](const std::string& name) { return name != "model.queue"; };
  for (int save = 0; save < 20; ++save) {
    training_["model.queue"] = save % 2 == 0 ? odd : even;
    training_.Train();
    const Found found = Save();
    EXPECT_FALSE(found.contains(std::string(alarm::kReturned))) << save;
  }
}

}  // namespace
}  // namespace cairn
