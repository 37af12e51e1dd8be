#include "coordinator/alarms/content_rules.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "coordinator/alarms/testing/training.h"

namespace cairn {
namespace {

using ContentRulesTest = AlarmsTest;

TEST_F(ContentRulesTest, MomentsOfOneShard) {
  Go();
  training_.Train();
  std::vector<float>& moments = training_["optimizer.state.layers.5.weight.exp_avg"];
  std::fill(moments.begin() + Training::kElements / 2, moments.end(), 0.0f);
  ExpectOne(Save(), alarm::kZeroMoments, {"optimizer.state.layers.5.weight.exp_avg"});
}

TEST_F(ContentRulesTest, MomentsOfZero) {
  Go();
  training_.Train();
  std::ranges::fill(training_["optimizer.state.layers.5.weight.exp_avg"], 0.0f);
  ExpectOne(Save(), alarm::kZeroMoments, {"optimizer.state.layers.5.weight.exp_avg", "step 8"});
}

TEST_F(ContentRulesTest, ATrainingThatBeginsWithAnOptimizerOfItsOwn) {
  Go();
  training_.line = 2;
  training_.Train();
  for (int layer = 0; layer < Training::kLayers; ++layer) {
    const std::string name = "optimizer.state.layers." + std::to_string(layer) + ".weight.";
    std::ranges::fill(training_[name + "exp_avg"], 0.0f);
    std::ranges::fill(training_[name + "exp_avg_sq"], 0.0f);
    training_[name + "step"] = {0};
  }
  EXPECT_EQ(Save(), None());
}

TEST_F(ContentRulesTest, NotANumber) {
  Go();
  training_.Train();
  training_["model.layers.1.weight"][700] = NAN;
  ExpectOne(Save(), alarm::kNonFinite, {"1 element", "model.layers.1.weight"});
  training_.Train();
  ExpectOne(Save(), alarm::kNonFinite, {"as some were"});
  training_["model.layers.1.weight"][700] = 0;
  training_.Train();
  EXPECT_EQ(Save(), None());
}

// What is infinite from the first step, as a mask is, is meant.
TEST_F(ContentRulesTest, AMask) {
  training_["model.frozen"][5] = -INFINITY;
  Go();
}

TEST_F(ContentRulesTest, NamesAndShapesThatDrift) {
  Go();
  training_.Train();
  training_.Remove("model.frozen");
  training_["model.layers.0.weight"].resize(512);
  ExpectOne(Save(), alarm::kStateDrift,
            {"shape or dtype", "model.layers.0.weight", "not there any more", "model.frozen"});
  training_.line = 2;
  training_.Remove("model.layers.1.weight");
  training_.Train();
  EXPECT_EQ(Save(), None());  // another run may have another model
}

TEST_F(ContentRulesTest, AnExpertInTheOthersPlace) {
  Go();
  training_.Train();
  training_["model.layers.6.weight"] = training_["model.layers.7.weight"];
  const Found found = Save();
  EXPECT_TRUE(found.contains(std::string(alarm::kEqualTensors))) << ::testing::PrintToString(found);
  EXPECT_NE(found.at(std::string(alarm::kEqualTensors)).find("model.layers.6.weight = model.layers.7.weight"),
            std::string::npos);
}

// Weights that are equal from the begin on are tied, or were copied.
TEST_F(ContentRulesTest, TiedWeights) {
  training_["model.layers.6.weight"] = training_["model.layers.7.weight"];
  training_.moves = [](const std::string& name) {
    return name.find(".6.") == std::string::npos && name.find(".7.") == std::string::npos;
  };
  Go();
}

TEST_F(ContentRulesTest, TiedWeightsThatPart) {
  training_.Add("model.head.weight", {});
  for (int save = 0; save < 8; ++save) {
    training_.Train();
    training_["model.head.weight"] = training_["model.layers.0.weight"];
    EXPECT_EQ(Save(), None());
  }
  training_.Train();
  ExpectOne(Save(), alarm::kUntied, {"model.head.weight = model.layers.0.weight"});
  Go(3);
}

}  // namespace
}  // namespace cairn
