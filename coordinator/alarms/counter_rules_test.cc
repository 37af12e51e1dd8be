#include "coordinator/alarms/counter_rules.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace cairn
