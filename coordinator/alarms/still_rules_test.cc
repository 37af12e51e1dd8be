#include "coordinator/alarms/still_rules.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include "coordinator/alarms/testing/training.h"

namespace cairn {
namespace {

class StillRulesTest : public AlarmsTest {
 protected:
  // Takes the weights' names out of those of the optimizer's state.
  void NumberMoments() {
    for (int layer = 0; layer < Training::kLayers; ++layer) {
      const std::string name = "optimizer.state.layers." + std::to_string(layer) + ".weight.";
      for (const char* key : {"exp_avg", "exp_avg_sq", "step"}) {
        training_.Rename(name + key, "optimizer.state." + std::to_string(layer) + "." + key);
      }
    }
  }
};

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
  for (int save = 0; save < 2; ++save) {
    ++training_.Object("loader")[0];
    EXPECT_EQ(Save(), None());  // steps that were skipped
  }
  ++training_.Object("loader")[0];
  ExpectOne(Save(), alarm::kSameStep, {"for 3 saves", "model.layers.*.weight (8)", "written by all ranks"});
  ++training_.Object("loader")[0];
  EXPECT_EQ(Save(), None());  // it was said
}

// Without moments, a rate of 0 looks the same.
TEST_F(StillRulesTest, WeightsAloneThatStandStill) {
  for (int layer = 0; layer < Training::kLayers; ++layer) {
    for (const char* key : {".exp_avg", ".exp_avg_sq", ".step"}) {
      training_.Remove("optimizer.state.layers." + std::to_string(layer) + ".weight" + key);
    }
  }
  Go();
  for (int save = 0; save < 8; ++save) {
    ++training_.Object("loader")[0];
    EXPECT_EQ(Save(), None()) << save;
  }
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

// An outer optimizer goes on each ten steps, and there is a save each nine.
TEST_F(StillRulesTest, AnOptimizerOfRounds) {
  const std::string outer = "outer_optimizer.state.layers.", average = "ema.layers.";
  for (int layer = 0; layer < Training::kLayers; ++layer) {
    const std::string name = std::to_string(layer) + ".weight";
    training_.Add(outer + name + ".momentum_buffer", training_["model.layers." + name]);
    training_.Add(average + name, training_["model.layers." + name]);
  }
  int step = 0;
  training_.moves = [&](const std::string& name) {
    return step % 10 == 0 || (!name.starts_with(outer) && !name.starts_with(average));
  };
  for (int save = 1; save < 40; ++save) {
    for (const int end = step + 9; step < end;) {
      ++step;
      training_.Train();
    }
    EXPECT_EQ(Save(), None()) << save;
  }
}

// One more is the same number there.
TEST_F(StillRulesTest, StepsThatCountUpToTheLastNumber) {
  for (int layer = 0; layer < Training::kLayers; ++layer) {
    training_["optimizer.state.layers." + std::to_string(layer) + ".weight.step"] = {16777216 - 8};
  }
  Go(16);
}

// The state dict was made once, before the first step.
TEST_F(StillRulesTest, AnOptimizerThatWasNeverSavedAnew) {
  training_.moves = [](const std::string& name) { return !name.starts_with("optimizer"); };
  Go(6);
  for (int save = 0; save < 3; ++save) {
    training_.Train();
    ExpectOne(Save(), alarm::kFrozenOptimizer,
              {"the optimizer's state in none", "optimizer.state.layers.*.weight.exp_avg (8)"});
  }
}

TEST_F(StillRulesTest, AnOptimizerWithNumbersThatWasNeverSavedAnew) {
  NumberMoments();
  training_.moves = [](const std::string& name) { return !name.starts_with("optimizer"); };
  Go(6);
  training_.Train();
  ExpectOne(Save(), alarm::kFrozenOptimizer, {"the optimizer's state in none", "optimizer.state.*.exp_avg (8)"});
}

// Nothing is known of an optimizer whose moments are zeros, nor of one whose weights rest with it.
TEST_F(StillRulesTest, AnOptimizerThatHasNotBegun) {
  for (int layer = 0; layer < Training::kLayers; ++layer) {
    const std::string name = "optimizer.state.layers." + std::to_string(layer) + ".weight.";
    for (const char* key : {"exp_avg", "exp_avg_sq"}) {
      training_.Add(name + key, std::vector<float>(Training::kElements));
    }
  }
  training_.moves = [](const std::string& name) { return !name.starts_with("optimizer"); };
  Go(12);
  training_.moves = [](const std::string& name) { return name.find("layers.") == std::string::npos; };
  Go(12);
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
  NumberMoments();
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

// A rank holds the rare rows of all tables, and nothing else.
TEST_F(StillRulesTest, ARankWithRareRowsAlone) {
  for (const char* table : {"emb_l.0.weight", "emb_l.1.weight", "user_factors"}) {
    training_.Add("model." + std::string(table), training_["model.frozen"]);
    for (const char* key : {".exp_avg", ".exp_avg_sq"}) {
      training_.Add("optimizer.state." + std::string(table) + key, std::vector<float>(Training::kElements, 0.01f));
    }
  }
  // Dense weights are rank 0's.
  for (int layer = 0; layer < Training::kLayers; ++layer) {
    training_.Remove("model.layers." + std::to_string(layer) + ".weight");
    for (const char* key : {".exp_avg", ".exp_avg_sq", ".step"}) {
      training_.Remove("optimizer.state.layers." + std::to_string(layer) + ".weight" + key);
    }
  }
  Go();
  const Training old = training_;
  training_.Train();
  EXPECT_EQ(Save(&old, 1), None());
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
  training_.moves = [](const std::string& name) { return !name.ends_with(".exp_avg"); };
  training_.Train();
  ExpectOne(Save(), alarm::kFrozenOptimizer,
            {"for all weights", ": optimizer.state.layers.*.weight.exp_avg (8), written by all ranks"});
}

// As in 1-bit Adam, after its warm-up.
TEST_F(StillRulesTest, AVarianceThatIsKept) {
  Go();
  training_.moves = [](const std::string& name) { return !name.ends_with(".exp_avg_sq"); };
  Go(3);
}

TEST_F(StillRulesTest, StepsAlone) {
  Go();
  training_.moves = [](const std::string& name) { return !name.ends_with(".step"); };
  training_.Train();
  ExpectOne(Save(), alarm::kFrozenOptimizer, {"optimizer.state.layers.*.weight.step (8), written by rank 1"});
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

// The rate is 0 at first.
TEST_F(StillRulesTest, AllWeightsAreOldAfterAWarmUp) {
  training_.moves = [](const std::string& name) { return !name.starts_with("model."); };
  Go(4);
  training_.moves = [](const std::string&) { return true; };
  Go();
  training_.moves = [](const std::string& name) { return !name.starts_with("model."); };
  training_.Train();
  ExpectOne(Save(), alarm::kStaleTensor, {"model.layers.*.weight (8), written by all ranks"});
}

// Averages are made at the end of an epoch, and a save comes before it.
TEST_F(StillRulesTest, AveragesOfEachEpoch) {
  training_.Add("ema.weight", training_["model.layers.0.weight"]);
  for (int save = 0; save < 8; ++save) {
    training_.Train();
    Go(1);
  }
  training_.moves = [](const std::string& name) { return !name.starts_with("ema."); };
  Go(1);
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

// A state that was saved twice does not hide what comes later.
TEST_F(StillRulesTest, AfterAStateThatWasSavedTwice) {
  Go();
  ExpectOne(Save(), alarm::kSameStep, {"step 8"});
  Go();
  training_.moves = [](const std::string& name) { return !name.starts_with("optimizer"); };
  training_.Train();
  ExpectOne(Save(), alarm::kFrozenOptimizer, {"model.layers.*.weight (8)"});
}

// Nor does a step of the optimizer that a gradient scaler skipped.
TEST_F(StillRulesTest, AfterASkippedStep) {
  Go();
  ++training_.Object("loader")[0];
  EXPECT_EQ(Save(), None());
  Go(3);
  training_.moves = [](const std::string& name) { return name != "model.layers.2.weight"; };
  training_.Train();
  ExpectOne(Save(), alarm::kStaleTensor, {"model.layers.2.weight"});
  training_.moves = [](const std::string&) { return true; };
  Go(8);
  // This one has stood still alone.
  training_.moves = [](const std::string& name) { return name != "model.layers.2.weight"; };
  Go(1);
}

TEST_F(StillRulesTest, AnOptimizerThatStaysFrozen) {
  Go();
  training_.moves = [](const std::string& name) { return !name.starts_with("optimizer"); };
  for (int save = 0; save < 5; ++save) {
    training_.Train();
    ExpectOne(Save(), alarm::kFrozenOptimizer, {"model.layers.*.weight (8)"});
  }
  training_.moves = [](const std::string&) { return true; };
  Go(3);
}

TEST_F(StillRulesTest, WhatIsNotANumberCannotChange) {
  Go();
  training_.Train();
  for (int layer = 0; layer < Training::kLayers; ++layer) {
    std::vector<float>& weight = training_["model.layers." + std::to_string(layer) + ".weight"];
    std::fill(weight.begin() + Training::kElements / 2, weight.end(), NAN);
  }
  for (int save = 0; save < 3; ++save) {
    ExpectOne(Save(), alarm::kNonFinite, {"model.layers.*.weight (8)"});
    training_.Train();
  }
}

// The ranks share the rows of a ring, of which a few are written between two saves.
TEST_F(StillRulesTest, RingsWhoseRowsTheRanksShare) {
  const std::vector<std::string> rings = {"replay.actions", "replay.observations"};
  for (const std::string& name : rings) training_.Add(name, training_["model.frozen"]);
  training_.moves = [](const std::string& name) { return !name.starts_with("replay"); };
  for (size_t save = 0; save < 20; ++save) {
    for (const std::string& name : rings) training_[name][save] += 1;
    Go(1);
  }
}

// Only the rows that occur are updated, and a rank has those of rare words.
TEST_F(StillRulesTest, RareRowsOfTables) {
  for (int layer = 0; layer < Training::kLayers; ++layer) {
    const std::string number = std::to_string(layer);
    training_.Rename("model.layers." + number + ".weight", "model.tables." + number + ".weight");
    for (const char* key : {"exp_avg", "exp_avg_sq"}) {
      training_.Rename("optimizer.state.layers." + number + ".weight." + key,
                       "optimizer.state.tables." + number + ".weight." + key);
    }
    training_.Remove("optimizer.state.layers." + number + ".weight.step");
  }
  Go();
  const Training old = training_;
  training_.Train();
  EXPECT_EQ(Save(&old, 1), None());
}

// A normalizing layer moves at a step that the optimizer skips. All of it is rank 0's.
TEST_F(StillRulesTest, ASkippedStepWithNormalization) {
  training_.Add("model.norm.running_mean", training_["model.frozen"]);
  Go();
  const Training old = training_;
  training_.moves = [](const std::string& name) { return name == "model.norm.running_mean"; };
  training_.Train();
  EXPECT_EQ(Save(&old, 1), None());
}

// The rate falls so far that some weights round the updates away, and others do not.
TEST_F(StillRulesTest, ALearningRateThatFallsByHalves) {
  for (int save = 0; save < 9; ++save) {
    Go(1);
    training_.step_size /= 2;
  }
  training_.moves = [](const std::string& name) { return name != "model.layers.2.weight"; };
  Go(1);
}

// The rate is cut to nearly nothing.
TEST_F(StillRulesTest, UpdatesThatAreRoundedAway) {
  Go();
  training_.step_size = 1e-7f;
  training_.moves = [](const std::string& name) { return name != "model.layers.2.weight"; };
  Go(3);
}

// An expert that gets no tokens any more moves a little by what its moments still have.
TEST_F(StillRulesTest, AWeightWithoutGradients) {
  Go();
  training_.moves = [](const std::string& name) { return name != "model.layers.3.weight"; };
  for (float& value : training_["model.layers.3.weight"]) value += 0.001f;
  Go(5);
}

// Some weights have an optimizer of another kind, which rests with them.
TEST_F(StillRulesTest, MomentsOfWeightsThatRest) {
  for (int layer = 6; layer < Training::kLayers; ++layer) {
    const std::string name = "optimizer.state.layers." + std::to_string(layer) + ".weight.";
    training_.Rename(name + "exp_avg", name + "square_avg");
    training_.Remove(name + "exp_avg_sq");
  }
  Go();
  training_.moves = [](const std::string& name) {
    return name.find("layers.6.") == std::string::npos && name.find("layers.7.") == std::string::npos;
  };
  Go(3);
}

TEST_F(StillRulesTest, ASkippedStepWithNumbersAndNormalization) {
  for (int layer = 0; layer < Training::kLayers; ++layer) {
    const std::string name = "optimizer.state.layers." + std::to_string(layer) + ".weight.";
    for (const char* key : {"exp_avg", "exp_avg_sq", "step"}) {
      training_.Rename(name + key, "optimizer.state." + std::to_string(layer) + "." + key);
    }
  }
  training_.Add("model.norm.running_mean", training_["model.frozen"]);
  Go();
  training_.moves = [](const std::string& name) { return name == "model.norm.running_mean"; };
  Go(1);
}

// Fine-tuning keeps the statistics and the averages as they are.
TEST_F(StillRulesTest, ANewRunWithoutUpdatesOfStatistics) {
  training_.Add("model.norm.running_mean", training_["model.frozen"]);
  training_.Add("ema.norm.weight", training_["model.frozen"]);
  Go();
  training_.line = 2;
  training_.moves = [](const std::string& name) { return !name.starts_with("ema") && !name.ends_with("running_mean"); };
  Go();
}

// A rate for each layer rises and falls.
TEST_F(StillRulesTest, ATensorThatNobodyTrains) {
  training_.Add("rates", training_["model.frozen"]);
  training_.moves = [](const std::string& name) { return name != "rates"; };
  for (int save = 0; save < 24; ++save) {
    for (float& value : training_["rates"]) value += save < 12 ? 1.0f : -1.0f;
    Go(1);
  }
}

// Its momentum and its weights change in rounds.
TEST_F(StillRulesTest, AnOuterOptimizerThatStandsStill) {
  const auto outer = [](const std::string& name) { return name.starts_with("outer"); };
  for (int layer = 0; layer < Training::kLayers; ++layer) {
    const std::string name = "layers." + std::to_string(layer) + ".weight";
    training_.Add("outer." + name, training_["model." + name]);
    training_.Add("outer_optimizer.state." + name + ".momentum_buffer",
                  training_["optimizer.state." + name + ".exp_avg"]);
  }
  Go(12);
  training_.moves = [&](const std::string& name) { return !outer(name); };
  Go(1);  // within a round
  training_.moves = [](const std::string&) { return true; };
  Go(8);
}

TEST_F(StillRulesTest, AnOuterOptimizerWhoseMomentumIsOld) {
  for (int layer = 0; layer < Training::kLayers; ++layer) {
    const std::string name = "layers." + std::to_string(layer) + ".weight";
    training_.Add("outer." + name, training_["model." + name]);
    training_.Add("outer_optimizer.state." + name + ".momentum_buffer",
                  training_["optimizer.state." + name + ".exp_avg"]);
  }
  Go(12);
  training_.moves = [](const std::string& name) { return !name.starts_with("outer_optimizer"); };
  training_.Train();
  ExpectOne(Save(), alarm::kFrozenOptimizer, {"weights that changed: outer.layers.*.weight (8)"});
}

}  // namespace
}  // namespace cairn
