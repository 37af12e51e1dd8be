#include "coordinator/alarms/counter_rules.h"

#include <gtest/gtest.h>

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

TEST_F(CounterRulesTest, ValuesThatNeedNotCount) {
  training_.Object("optimizer.param_groups") = {1};
  for (int i = 0; i < 12; ++i) {
    if (i < 8) ++training_.Object("optimizer.param_groups")[0];  // the rate warms up
    Go(1);
  }
}

TEST_F(CounterRulesTest, TheLoaderOfOneRank) {
  training_.Object("data") = {1, 2};
  for (int i = 0; i < 8; ++i) {
    for (uint32_t& position : training_.Object("data")) position += 10;
    Go(1);
  }
  training_.Object("data")[0] += 10;
  training_.Train();
  ExpectOne(Save(), alarm::kCounterStopped, {"data of rank 1"});
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

TEST_F(CounterRulesTest, OneGeneratorForAll) {
  Go();
  training_.Train();
  training_.Object("rng") = {99, 99};
  ExpectOne(Save(), alarm::kEqualRandomStates, {"rng"});
}

TEST_F(CounterRulesTest, OneGeneratorForTwoRanksOfThree) {
  training_.Object("rng") = {11, 12, 13};
  Go();
  training_.Train();
  std::vector<uint32_t>& states = training_.Object("rng");
  states[1] = states[2];
  ExpectOne(Save(), alarm::kEqualRandomStates, {"the same on ranks 1, 2", "rng"});
}

// The ranks of a tensor-parallel group share one.
TEST_F(CounterRulesTest, GeneratorsOfGroups) {
  training_.Object("rng") = {11, 11, 12, 12};
  Go();
}

TEST_F(CounterRulesTest, ChecksumsThatAreEqualByChance) {
  std::vector<uint32_t>& states = training_.Object("rng");
  states.clear();
  for (uint32_t rank = 0; rank < 200; ++rank) states.push_back(100 * rank);
  Go();
  states[7] = states[100];
  Go(1);
}

class OlderLoaderTest : public AlarmsTest, public ::testing::WithParamInterface<uint32_t> {};

TEST_P(OlderLoaderTest, IsNamed) {
  Go();
  training_.Train();
  training_.Object("loader")[0] -= GetParam();
  ExpectOne(Save(), alarm::kCounterStopped, {"the same as some saves before step 8: loader"});
}

INSTANTIATE_TEST_SUITE_P(Saves, OlderLoaderTest, ::testing::Values(2, 3, 4));

// An epoch has four saves.
TEST_F(CounterRulesTest, ALoaderThatBeginsAnewInEachEpoch) {
  for (uint32_t save = 0; save < 40; ++save) {
    training_.Train();
    training_.Object("loader")[0] = save % 4;
    EXPECT_EQ(Save(), None()) << save;
  }
}

TEST_F(CounterRulesTest, BatchesThatWereCounted) {
  training_.Add("model.norm.num_batches_tracked", {100});
  for (int save = 0; save < 8; ++save) {
    training_["model.norm.num_batches_tracked"][0] = 100.0f + static_cast<float>(save);
    Go(1);
  }
  training_["model.norm.num_batches_tracked"] = {0};
  training_.Train();
  training_["model.norm.num_batches_tracked"] = {0};
  ExpectOne(Save(), alarm::kCounterStopped, {"smaller", "model.norm.num_batches_tracked"});
}

}  // namespace
}  // namespace cairn
