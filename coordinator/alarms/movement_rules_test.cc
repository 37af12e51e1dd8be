#include "coordinator/alarms/movement_rules.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>
#include <string>
#include <utility>
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

// A rank hands over an array that it has not filled.
TEST_F(MovementRulesTest, ARankOfZeros) {
  Go();
  training_.Train();
  Training zeros = training_;
  for (int layer = 0; layer < Training::kLayers; ++layer) {
    for (const char* name : {"model.layers.", "optimizer.state.layers."}) {
      for (const char* key : {"", ".exp_avg", ".exp_avg_sq"}) {
        const std::string each = name + std::to_string(layer) + ".weight" + key;
        if ((name[0] == 'm') == (*key == 0)) std::ranges::fill(zeros[each], 0.0f);
      }
    }
  }
  const Found found = Save(&zeros, 1);
  for (const auto& [kind, names] : {std::pair{alarm::kJump, "model.layers.*.weight (8)"},
                                    std::pair{alarm::kZeroMoments, "optimizer.state.layers.*.weight.exp_avg (8)"}}) {
    const auto told = found.find(std::string(kind));
    ASSERT_NE(told, found.end()) << kind;
    EXPECT_NE(told->second.find("all that rank 1 wrote of these is zeros, and none was at step 8: "), std::string::npos)
        << told->second;
    EXPECT_NE(told->second.find(names), std::string::npos) << told->second;
  }
}

TEST_F(MovementRulesTest, AFrozenWeightThatIsLost) {
  Go();
  training_.Train();
  std::ranges::fill(training_["model.frozen"], 0.0f);
  ExpectOne(Save(), alarm::kJump, {"frozen in each save up to step 8", "model.frozen"});
}

TEST_F(MovementRulesTest, AFrozenWeightThatIsAnother) {
  Go();
  training_.Train();
  std::ranges::reverse(training_["model.frozen"]);
  ExpectOne(Save(), alarm::kJump, {"model.frozen"});
  Go(2);
}

// A target network is a copy of the model, a layer is trained from now on, and a buffer is filled.
TEST_F(MovementRulesTest, FrozenWeightsThatAreMeantToMove) {
  training_.Add("model.target", training_["model.frozen"]);
  training_.Add("model.buffer", std::vector<float>(Training::kElements));
  training_.Add("target.weight", training_["model.frozen"]);
  training_.moves = [](const std::string& name) { return name.find("target") == name.npos && name != "model.buffer"; };
  Go();
  training_["model.target"] = training_["model.layers.2.weight"];
  training_["target.weight"] = training_["model.layers.3.weight"];
  training_["target.weight"][0] += 1;
  training_["model.buffer"] = training_["model.layers.4.weight"];
  for (float& value : training_["model.frozen"]) value += 0.1f;
  EXPECT_EQ(Save(), None());
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
  training_.step_size = 0.1f;
  for (int i = 0; i < 60; ++i) training_.Train();
  EXPECT_EQ(Save(), None());
}

// After so long a training, nothing may be left of a weight.
TEST_F(MovementRulesTest, SavesFarApart) {
  Go();
  training_.step_size = 0.07f;
  for (int i = 0; i < 40; ++i) training_.Train();
  std::ranges::reverse(training_["model.layers.4.weight"]);
  EXPECT_EQ(Save(), None());
  training_.step_size = 0.01f;
  Go(30);
  training_.step_size = 0.07f;
  for (int i = 0; i < 80; ++i) training_.Train();
  for (int layer = 0; layer < Training::kLayers; ++layer) {
    std::ranges::reverse(training_["model.layers." + std::to_string(layer) + ".weight"]);
  }
  EXPECT_EQ(Save(), None());
}

// A step of the optimizer is skipped, and two weights of a few elements change places.
TEST_F(MovementRulesTest, SmallWeightsThatChangePlacesWithoutTraining) {
  for (int layer = 4; layer < 6; ++layer) training_["model.layers." + std::to_string(layer) + ".weight"].resize(64);
  Go();
  std::swap(training_["model.layers.4.weight"], training_["model.layers.5.weight"]);
  ++training_.Object("loader")[0];
  EXPECT_TRUE(Save().contains(std::string(alarm::kJump)));
}

// Experts and their router: the rows of the router are those of the experts.
class ExpertsTest : public AlarmsTest {
 protected:
  static std::string Expert(int number) { return "model.mlp.experts." + std::to_string(number) + ".weight"; }
  ExpertsTest() {
    for (int number = 0; number < 4; ++number) {
      training_.Rename("model.layers." + std::to_string(number) + ".weight", Expert(number));
      for (const char* key : {".exp_avg", ".exp_avg_sq", ".step"}) {
        const std::string state = "optimizer.state.";
        training_.Rename(state + "layers." + std::to_string(number) + ".weight" + key,
                         state + Expert(number).substr(6) + key);
      }
    }
    training_.Rename("model.layers.4.weight", "model.mlp.router.weight");
    training_.Rename("optimizer.state.layers.4.weight.exp_avg", "optimizer.state.mlp.router.weight.exp_avg");
  }
  void SwapExperts() {
    std::swap(training_[Expert(1)], training_[Expert(3)]);
    for (const char* key : {".exp_avg", ".exp_avg_sq"}) {
      std::swap(training_["optimizer.state." + Expert(1).substr(6) + key],
                training_["optimizer.state." + Expert(3).substr(6) + key]);
    }
  }
  void SwapRows() {
    std::vector<float>& router = training_["model.mlp.router.weight"];
    std::swap_ranges(router.begin() + 256, router.begin() + 512, router.begin() + 768);
  }
};

TEST_F(ExpertsTest, ThatChangePlacesWithTheirRows) {
  Go();
  training_.Train();
  SwapExperts();
  SwapRows();
  EXPECT_EQ(Save(), None());
}

// Most weights are experts, and they change places now and then.
TEST_F(ExpertsTest, ThatChangePlacesAgain) {
  for (int layer = 6; layer < Training::kLayers; ++layer) {
    training_.Remove("model.layers." + std::to_string(layer) + ".weight");
    for (const char* key : {".exp_avg", ".exp_avg_sq", ".step"}) {
      training_.Remove("optimizer.state.layers." + std::to_string(layer) + ".weight" + key);
    }
  }
  Go();
  SwapExperts();
  SwapRows();
  Go(8);
  std::swap(training_[Expert(0)], training_[Expert(2)]);
  for (const char* key : {".exp_avg", ".exp_avg_sq"}) {
    std::swap(training_["optimizer.state." + Expert(0).substr(6) + key],
              training_["optimizer.state." + Expert(2).substr(6) + key]);
  }
  std::vector<float>& router = training_["model.mlp.router.weight"];
  std::swap_ranges(router.begin(), router.begin() + 256, router.begin() + 512);
  Go(4);
}

// One has had no tokens yet.
TEST_F(ExpertsTest, ThatChangePlacesWithOneThatRests) {
  for (const char* key : {".exp_avg", ".exp_avg_sq"}) {
    std::ranges::fill(training_["optimizer.state." + Expert(3).substr(6) + key], 0.0f);
  }
  const std::string rests = Expert(3).substr(6);
  training_.moves = [&](const std::string& name) { return name.find(rests) == std::string::npos; };
  Go();
  training_.Train();
  SwapExperts();
  SwapRows();
  EXPECT_EQ(Save(), None());
}

TEST_F(ExpertsTest, ThatChangePlacesAlone) {
  Go();
  training_.Train();
  SwapExperts();
  ExpectOne(Save(), alarm::kJump, {"model.mlp.experts.*.weight (2)"});
}

TEST_F(ExpertsTest, ARouterThatChangesAlone) {
  Go();
  training_.Train();
  SwapRows();
  ExpectOne(Save(), alarm::kJump, {"model.mlp.router.weight"});
}

// One weight goes on in one direction, and the others do not.
TEST_F(MovementRulesTest, AWeightThatDriftsForLong) {
  Go();
  training_.step_size = 0.002f;
  for (int i = 0; i < 100; ++i) training_.Train();
  for (float& value : training_["model.layers.4.weight"]) value += 1;
  EXPECT_EQ(Save(), None());
}

// Nothing counts the steps, and other weights tell how long it was.
TEST_F(MovementRulesTest, SavesFarApartWithoutCounts) {
  for (int layer = 0; layer < Training::kLayers; ++layer) {
    training_.Remove("optimizer.state.layers." + std::to_string(layer) + ".weight.step");
  }
  Go();
  training_.step_size = 0.07f;
  for (int i = 0; i < 40; ++i) training_.Train();
  std::ranges::reverse(training_["model.layers.4.weight"]);
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

// The second moments, which move slowly.
class MisplacedMomentsTest : public AlarmsTest {
 protected:
  static std::string Second(int layer) {
    return "optimizer.state.layers." + std::to_string(layer) + ".weight.exp_avg_sq";
  }
  // Trains with second moments as Adam has them.
  void Settle() {
    for (int layer = 0; layer < Training::kLayers; ++layer) {
      for (float& value : training_[Second(layer)]) value = std::abs(value) + 1e-6f * static_cast<float>(layer + 1);
    }
    training_.moves = [](const std::string& name) { return !name.ends_with("exp_avg_sq"); };
    for (int save = 0; save < 8; ++save) {
      Fade();
      Go(1);
    }
    Fade();
    training_.Train();
  }

 private:
  void Fade() {
    for (int layer = 0; layer < Training::kLayers; ++layer) {
      for (float& value : training_[Second(layer)]) value *= 0.99f;
    }
  }
};

TEST_F(MisplacedMomentsTest, MomentsOfTwoWeightsThatChangePlaces) {
  Settle();
  std::swap(training_[Second(2)], training_[Second(5)]);
  ExpectOne(Save(), alarm::kWrongPlace,
            {"optimizer.state.layers.*.weight.exp_avg_sq (2)", Second(2) + " is nearly what " + Second(5) + " was"});
}

TEST_F(MisplacedMomentsTest, TheOtherMoment) {
  Settle();
  std::swap(training_[Second(2)], training_["optimizer.state.layers.2.weight.exp_avg"]);
  ExpectOne(Save(), alarm::kWrongPlace, {"negative elements", Second(2)});
}

// An optimizer keeps the logarithms of squares, which fall below zero little by little.
TEST_F(MisplacedMomentsTest, Logarithms) {
  Settle();
  for (float& value : training_[Second(2)]) value = 3 + value;
  EXPECT_EQ(Save(), None());
  training_.Train();
  training_[Second(2)][7] = -0.2f;
  EXPECT_EQ(Save(), None());
}

// A batch has large gradients.
TEST_F(MisplacedMomentsTest, ASpike) {
  Settle();
  for (int layer = 0; layer < Training::kLayers; ++layer) {
    for (float& value : training_[Second(layer)]) value *= 50;
  }
  EXPECT_EQ(Save(), None());
}

// Adapters have tiny updates in a warm-up, and large ones at once.
TEST_F(MovementRulesTest, ARateThatBegins) {
  const std::string name = "model.layers.3.weight";
  training_.moves = [&](const std::string& each) { return each != name; };
  std::mt19937 random;
  std::normal_distribution<float> normal;
  const auto fill = [&](float scale) {
    for (float& value : training_[name]) value = scale * normal(random);
  };
  fill(1e-7f);
  for (int save = 0; save < 8; ++save) {
    fill(1e-7f);
    Go(1);
  }
  fill(1e-2f);
  Go(1);
  training_.Train();
  fill(1e-2f);
  training_[name][77] = 1e4f;
  ExpectOne(Save(), alarm::kJump, {name, "has an element of 1e+04"});
}

class FollowersTest : public AlarmsTest {
 protected:
  FollowersTest() {
    for (int layer = 0; layer < 3; ++layer) {
      const std::string number = std::to_string(layer);
      training_.Add("ema.layers." + number + ".weight", training_["model.layers." + number + ".weight"]);
      std::vector<float> variances;
      for (const float value : training_["model.layers." + number + ".weight"]) variances.push_back(5 + value);
      training_.Add("model.norms." + number + ".running_var", variances);
    }
  }
  void Zero(const std::string& name) { std::ranges::fill(training_[name], 0.0f); }
};

TEST_F(FollowersTest, ThatAreAllZeros) {
  Go();
  training_.Train();
  Zero("ema.layers.0.weight");
  Zero("model.norms.1.running_var");
  ExpectOne(Save(), alarm::kJump,
            {"averages of weights, or running statistics, are all zeros, and were not at step 8: "
             "ema.layers.0.weight, model.norms.1.running_var"});
  training_.moves = [](const std::string& name) { return name != "ema.layers.0.weight"; };
  training_.Train();
  ExpectOne(Save(), alarm::kJump, {"all zeros still: ema.layers.0.weight"});
}

// A channel that is never active has a mean that fades away.
TEST_F(FollowersTest, ThatHaveFaded) {
  training_.moves = [](const std::string& name) { return name != "model.norms.1.running_var"; };
  for (int save = 0; save < 8; ++save) {
    for (float& value : training_["model.norms.1.running_var"]) value *= 1e-4f;
    Go(1);
  }
  training_.Train();
  Zero("model.norms.1.running_var");
  EXPECT_EQ(Save(), None());
}

TEST_F(FollowersTest, ThatANewRunBeginsAnew) {
  Go();
  training_.line = 2;
  training_.Train();
  for (int layer = 0; layer < 3; ++layer) Zero("ema.layers." + std::to_string(layer) + ".weight");
  EXPECT_EQ(Save(), None());
}

TEST_F(FollowersTest, OfOneRankThatAreZeros) {
  Go();
  training_.Train();
  Training zeros = training_;
  for (int layer = 0; layer < 3; ++layer) {
    std::ranges::fill(zeros["ema.layers." + std::to_string(layer) + ".weight"], 0.0f);
  }
  training_.hands_over = [](const std::string& name) { return name.starts_with("ema."); };
  ExpectOne(Save(&zeros, 1), alarm::kJump, {"all that rank 1 wrote of these is zeros", "ema.layers.*.weight (3)"});
}

TEST_F(FollowersTest, InEachOthersPlace) {
  Go();
  training_.Train();
  std::swap(training_["ema.layers.0.weight"], training_["ema.layers.2.weight"]);
  ExpectOne(Save(), alarm::kWrongPlace, {"ema.layers.*.weight (2)", "ema.layers.0.weight is nearly what ema.layers.2"});
}

TEST_F(FollowersTest, VariancesThatAreNegative) {
  Go();
  training_.Train();
  for (float& value : training_["model.norms.1.running_var"]) value = -value;
  ExpectOne(Save(), alarm::kWrongPlace, {"has negative elements", "model.norms.1.running_var"});
}

}  // namespace
}  // namespace cairn
