#include "coordinator/alarms/counter_rules.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "coordinator/alarms/testing/training.h"

namespace cairn {
namespace {

using CounterRulesTest = AlarmsTest;

TEST_F(CounterRulesTest, ALoaderThatStandsStill) {
  Go();
  training_.Train();
  --training_.Object("loader")[0];
  ExpectOne(Save(), alarm::kCounterStopped, {"loader"});
}

// The rate is 0 at first, and stays so.
TEST_F(CounterRulesTest, ALoaderThatStandsStillWithoutARate) {
  training_.moves = [](const std::string& name) { return !name.starts_with("model."); };
  Go();
  training_.Train();
  --training_.Object("loader")[0];
  ExpectOne(Save(), alarm::kCounterStopped, {"loader"});
}

// The loader counts chunks of ten batches, and there is a save each nine.
TEST_F(CounterRulesTest, ALoaderThatRestsNowAndThen) {
  for (int save = 1; save < 40; ++save) {
    for (int step = 0; step < 9; ++step) training_.Train();
    training_.Object("loader")[0] = static_cast<uint32_t>(save * 9 / 10);
    EXPECT_EQ(Save(), None()) << save;
  }
}

// The program is stopped between two saves, and the loader counts files, one for a save.
TEST_F(CounterRulesTest, ASaveThatComesEarly) {
  for (int save = 0; save < 8; ++save) {
    training_.Train();
    Go(1);
  }
  training_.Train();
  --training_.Object("loader")[0];
  EXPECT_EQ(Save(), None());
}

// No step counts how much training there was.
TEST_F(CounterRulesTest, ASaveThatComesEarlyWithoutCounts) {
  for (int layer = 0; layer < Training::kLayers; ++layer) {
    training_.Remove("optimizer.state.layers." + std::to_string(layer) + ".weight.step");
  }
  Go();
  training_.step_size /= 2;
  training_.Train();
  --training_.Object("loader")[0];
  EXPECT_EQ(Save(), None());
  training_.step_size *= 2;
  Go();
  training_.Train();
  --training_.Object("loader")[0];
  EXPECT_EQ(Save(), None());  // it has rested before
}

TEST_F(CounterRulesTest, ALoaderThatStandsStillWithoutCounts) {
  for (int layer = 0; layer < Training::kLayers; ++layer) {
    training_.Remove("optimizer.state.layers." + std::to_string(layer) + ".weight.step");
  }
  Go();
  training_.Train();
  --training_.Object("loader")[0];
  ExpectOne(Save(), alarm::kCounterStopped, {"loader"});
}

// A run that resumes has larger batches, and counts one for two saves.
TEST_F(CounterRulesTest, ALoaderOfAnotherRun) {
  Go();
  training_.line = 2;
  for (uint32_t save = 0; save < 12; ++save) {
    training_.Object("loader") = {100 + save / 2 - 1};
    Go(1);
  }
}

TEST_F(CounterRulesTest, ValuesThatNeedNotCount) {
  training_.Object("optimizer.param_groups") = {1};
  for (int i = 0; i < 12; ++i) {
    if (i < 8) ++training_.Object("optimizer.param_groups")[0];  // the rate warms up
    Go(1);
  }
}

// One rank of a group reads the data of all.
TEST_F(CounterRulesTest, TheLoaderOfOneRank) {
  training_.Object("data") = {1, 2};
  for (int i = 0; i < 8; ++i) {
    training_.Object("data")[0] += 10;
    Go(1);
  }
}

// It keeps the rate, which does not change any more.
TEST_F(CounterRulesTest, AScheduleThatComesToRest) {
  for (uint32_t save = 0; save < 12; ++save) {
    training_.Object("scheduler") = {std::min(save, 8U)};
    Go(1);
  }
}

TEST_F(CounterRulesTest, StatisticsOfData) {
  for (uint32_t save = 0; save < 12; ++save) {
    training_.Object("data_quality") = {std::min(save, 8U)};
    training_.Object("metadata") = {std::min(save, 8U)};
    Go(1);
  }
}

// A loader that begins anew in each epoch, which has two saves from now on.
TEST_F(CounterRulesTest, ALoaderWhoseEpochsHaveFewSaves) {
  for (uint32_t save = 0; save < 24; ++save) {
    training_.Train();
    training_.Object("loader") = {save < 12 ? save : 100 + save % 2};
    EXPECT_EQ(Save(), None()) << save;
  }
}

// A gradient scaler skips a step of the optimizer; normalizing layers and averages go on.
TEST_F(CounterRulesTest, ASkippedStepWithNormalization) {
  training_.Add("model.norm.running_mean", std::vector<float>(64, 1));
  training_.Add("ema.weight", std::vector<float>(64, 1));
  Go();
  training_.moves = [](const std::string& name) { return name == "model.norm.running_mean" || name == "ema.weight"; };
  training_.Train();
  --training_.Object("loader")[0];
  EXPECT_EQ(Save(), None());
}

// Normalizing layers of the model go on with their counts, and the optimizer begins anew.
TEST_F(CounterRulesTest, AnOptimizerOfANewRunWithNormalization) {
  training_.Add("model.layers.0.num_batches_tracked", {100});
  training_.moves = [](const std::string& name) { return !name.ends_with("num_batches_tracked"); };
  Go();
  training_.line = 2;
  training_.Train();
  training_["model.layers.0.num_batches_tracked"] = {101};
  for (int layer = 0; layer < Training::kLayers; ++layer) {
    training_["optimizer.state.layers." + std::to_string(layer) + ".weight.step"] = {1};
  }
  EXPECT_EQ(Save(), None());
}

// The statistics of an average are made anew now and then, and a wrapper of the optimizer counts to five.
TEST_F(CounterRulesTest, CountsThatBeginAgain) {
  for (int save = 0; save < 20; ++save) {
    training_.Add("swa.layers.0.num_batches_tracked", {static_cast<float>(save % 7)});
    training_.Add("optimizer.lookahead.step", {static_cast<float>(save % 5)});
    training_.Train();
    training_["swa.layers.0.num_batches_tracked"] = {static_cast<float>(save % 7)};
    training_["optimizer.lookahead.step"] = {static_cast<float>(save % 5)};
    EXPECT_EQ(Save(), None()) << save;
  }
}

// A part of the optimizer begins anew with the run, and the rest does not.
TEST_F(CounterRulesTest, StepsThatGoBackInANewRun) {
  Go();
  training_.line = 2;
  training_.Train();
  training_["optimizer.state.layers.0.weight.step"] = {0};
  ExpectOne(Save(), alarm::kCounterStopped, {"layers.0.weight.step"});
}

TEST_F(CounterRulesTest, AStepThatGoesBack) {
  Go();
  training_.Train();
  training_["optimizer.state.layers.0.weight.step"] = {2};
  ExpectOne(Save(), alarm::kCounterStopped, {"smaller", "layers.0.weight.step"});
}

// The generators are seeded anew in each epoch, alike on all ranks.
TEST_F(CounterRulesTest, GeneratorsThatBecomeEqual) {
  for (uint32_t save = 1; save < 30; ++save) {
    training_.Train();
    training_.Object("rng") = {save / 8 + save % 8 * 3, save / 8 + save % 8 * 4};
    EXPECT_EQ(Save(), None()) << save;
  }
}

// An epoch has four saves.
TEST_F(CounterRulesTest, ALoaderThatBeginsAnewInEachEpoch) {
  for (uint32_t save = 0; save < 40; ++save) {
    training_.Train();
    training_.Object("loader")[0] = save % 4;
    EXPECT_EQ(Save(), None()) << save;
  }
}

TEST_F(CounterRulesTest, BatchesThatWereCounted) {
  training_.Add("model.layers.0.num_batches_tracked", {100});
  for (int save = 0; save < 8; ++save) {
    training_["model.layers.0.num_batches_tracked"][0] = 100.0f + static_cast<float>(save);
    Go(1);
  }
  training_["model.layers.0.num_batches_tracked"] = {0};
  training_.Train();
  training_["model.layers.0.num_batches_tracked"] = {0};
  ExpectOne(Save(), alarm::kCounterStopped, {"smaller", "model.layers.0.num_batches_tracked"});
}

TEST_F(CounterRulesTest, TheTrainersOwnCountOfSteps) {
  for (const char* name : {"step", "global_step", "iteration", "trainer", "trainer.global_step"}) {
    training_.Object(name) = {1};
  }
  const auto train = [&](const std::string& stopped) {
    training_.Train();
    for (const char* name : {"step", "global_step", "iteration", "trainer", "trainer.global_step"}) {
      training_.Object(name)[0] += name == stopped ? 0 : 1;
    }
  };
  for (const char* name : {"step", "global_step", "iteration", "trainer", "trainer.global_step"}) {
    for (int save = 0; save < 8; ++save) {
      train("");
      EXPECT_EQ(Save(), None()) << name;
    }
    train(name);
    ExpectOne(Save(), alarm::kCounterStopped, {std::string(": ") + name + " (", "in each save before"});
  }
}

TEST_F(CounterRulesTest, ACountOfStepsThatGoesBack) {
  training_.Object("global_step") = {100};
  for (int save = 0; save < 8; ++save) {
    ++training_.Object("global_step")[0];
    Go(1);
  }
  training_.Train();
  training_.Object("global_step")[0] -= 2;
  ExpectOne(Save(), alarm::kCounterStopped, {"what they were at an earlier save: global_step"});
}

// An epoch may be a little longer than what is between two saves, and a model of several may rest.
TEST_F(CounterRulesTest, CountsThatMayRest) {
  const std::vector<std::string> names = {"epoch", "generator.step", "optimizer.groups.step", "steps_of_warm_up"};
  for (const std::string& name : names) training_.Object(name) = {1};
  for (int save = 0; save < 30; ++save) {
    for (const std::string& name : names) training_.Object(name)[0] += save % 25 == 24 ? 0 : 1;
    Go(1);
  }
}

TEST_F(CounterRulesTest, ACountInATensor) {
  training_.Add("global_step", {100});
  training_.moves = [](const std::string& name) { return name != "global_step"; };
  for (int save = 1; save < 9; ++save) {
    training_["global_step"][0] = 100.0f + static_cast<float>(save);
    Go(1);
  }
  training_.Train();
  ExpectOne(Save(), alarm::kCounterStopped, {"the same as at step 8", "global_step"});
  training_["global_step"][0] = 7;
  training_.Train();
  ExpectOne(Save(), alarm::kCounterStopped, {"smaller than at step 9: global_step"});
  training_.line = 2;
  training_["global_step"][0] = 1;
  training_.Train();
  EXPECT_EQ(Save(), None());  // another run counts from its own beginning
}

TEST_F(CounterRulesTest, AStepThatIsFarAhead) {
  Go();
  training_.Train();
  training_["optimizer.state.layers.0.weight.step"] = {1e6f};
  ExpectOne(Save(), alarm::kCounterStopped, {"far ahead of the others", "layers.0.weight.step"});
}

// The others rest, as within a step of the optimizer.
TEST_F(CounterRulesTest, AStepThatIsFarAheadOfARest) {
  Go();
  training_["optimizer.state.layers.0.weight.step"] = {1e6f};
  const Found found = Save();
  ASSERT_TRUE(found.contains(std::string(alarm::kCounterStopped))) << ::testing::PrintToString(found);
  EXPECT_NE(found.at(std::string(alarm::kCounterStopped)).find("far ahead of the others"), std::string::npos);
}

// The first saves come early.
TEST_F(CounterRulesTest, AllStepsFarAhead) {
  Go();
  for (int step = 0; step < 3000; ++step) {
    for (int layer = 0; layer < Training::kLayers; ++layer) {
      ++training_["optimizer.state.layers." + std::to_string(layer) + ".weight.step"][0];
    }
  }
  Go(1);
}

}  // namespace
}  // namespace cairn
