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
  for (const char* key : {"exp_avg", "exp_avg_sq"}) {
    std::vector<float>& moments = training_["optimizer.state.layers.5.weight." + std::string(key)];
    std::fill(moments.begin() + Training::kElements / 2, moments.end(), 0.0f);
  }
  ExpectOne(
      Save(), alarm::kZeroMoments,
      {"optimizer.state.layers.5.weight.exp_avg, optimizer.state.layers.5.weight.exp_avg_sq, written by all ranks "
       "(steps 8 and 9 compared)"});
}

// Words do not occur for hundreds of steps, and small numbers are taken for zeros. The second moment fades more slowly.
TEST_F(ContentRulesTest, FirstMomentsOfRowsWithoutGradients) {
  Go();
  training_.Train();
  std::vector<float>& moments = training_["optimizer.state.layers.5.weight.exp_avg"];
  std::fill(moments.begin() + Training::kElements / 2, moments.end(), 0.0f);
  EXPECT_EQ(Save(), None());
}

TEST_F(ContentRulesTest, AWeightWithoutGradientsForLong) {
  const std::string first = "optimizer.state.layers.5.weight.exp_avg", second = first + "_sq";
  for (float& value : training_[second]) value = std::abs(value);
  training_.moves = [&](const std::string& name) { return name != second; };
  for (int save = 0; save < 8; ++save) {
    for (float& value : training_[second]) value *= 0.99f;
    Go(1);
  }
  training_.Train();
  std::ranges::fill(training_[first], 0.0f);
  for (float& value : training_[second]) value *= 0.5f;
  EXPECT_EQ(Save(), None());
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

// No episode has ended since the save before.
TEST_F(ContentRulesTest, AMeanOfNoSamples) {
  training_.Add("metrics.mean_reward", {1});
  training_.moves = [](const std::string& name) { return !name.starts_with("metrics"); };
  Go();
  training_["metrics.mean_reward"] = {NAN};
  Go(2);
}

TEST_F(ContentRulesTest, AStepThatIsNotANumber) {
  Go();
  training_.Train();
  training_["optimizer.state.layers.3.weight.step"] = {NAN};
  const Found found = Save();
  EXPECT_TRUE(found.contains(std::string(alarm::kNonFinite))) << ::testing::PrintToString(found);
}

// What is infinite from the first step, as a mask is, is meant.
TEST_F(ContentRulesTest, AMask) {
  training_["model.frozen"][5] = -INFINITY;
  Go();
}

TEST_F(ContentRulesTest, AShapeThatDrifts) {
  Go();
  training_.Train();
  training_["model.layers.0.weight"].resize(512);
  ExpectOne(Save(), alarm::kStateDrift, {"shape or dtype", "model.layers.0.weight"});
  training_.line = 2;
  training_["model.layers.1.weight"].resize(512);
  training_.Train();
  EXPECT_EQ(Save(), None());  // another run may have another model
}

// The caller says that they are meant to go: the save is refused otherwise.
TEST_F(ContentRulesTest, NamesThatGo) {
  Go();
  training_.Remove("model.frozen");
  Go(3);
}

// The losses so far, and tokens that are left over, are longer or shorter at each save.
TEST_F(ContentRulesTest, ATensorThatGrows) {
  for (size_t save = 1; save < 10; ++save) {
    training_.Add("history.loss", std::vector<float>(save, 1));
    Go(1);
  }
}

// An observer is empty after each epoch, until it has seen a batch.
TEST_F(ContentRulesTest, AnObserverThatIsReset) {
  for (int epoch = 0; epoch < 3; ++epoch) {
    training_.Add("model.observer.max_val", {});
    Go(1);
    training_.Add("model.observer.max_val", std::vector<float>(64, 1));
    Go(8);
  }
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

class TiedWeightsTest : public AlarmsTest {
 protected:
  // Trains a weight and a copy of it, which is made before each save.
  void GoTied(const std::string& weight, const std::string& copy, int saves = 10) {
    for (int save = 0; save < saves; ++save) {
      training_.Train();
      training_.Add(copy, training_[weight]);
      EXPECT_EQ(Save(), None());
    }
  }
};

TEST_F(TiedWeightsTest, ThatPart) {
  training_.Add("model.embedding.weight", training_["model.frozen"]);
  GoTied("model.embedding.weight", "model.head.weight");
  training_.Train();
  ExpectOne(Save(), alarm::kUntied, {"model.embedding.weight = model.head.weight"});
  Go(3);
}

TEST_F(TiedWeightsTest, ThatAnotherRunTrainsApart) {
  training_.Add("model.embedding.weight", training_["model.frozen"]);
  GoTied("model.embedding.weight", "model.head.weight");
  training_.line = 2;
  Go(3);
}

// The best weights so far, a teacher, a target network: not all saves are after a copy.
TEST_F(TiedWeightsTest, CopiesOfAModel) {
  training_.Add("model.embedding.weight", training_["model.frozen"]);
  GoTied("model.embedding.weight", "best.lm_head.weight");
  Go(3);
}

TEST_F(TiedWeightsTest, CopiesOfALayer) {
  GoTied("model.layers.0.weight", "model.layers.0.copy");
  Go(3);
}

// An expert without tokens has no gradient after the optimizer began anew.
TEST_F(ContentRulesTest, ANewOptimizerAndAnExpertWithoutTokens) {
  Go();
  training_.line = 2;
  training_.Train();
  for (int layer = 0; layer < Training::kLayers; ++layer) {
    training_["optimizer.state.layers." + std::to_string(layer) + ".weight.step"] = {1};
  }
  for (const char* key : {"exp_avg", "exp_avg_sq"}) {
    std::ranges::fill(training_["optimizer.state.layers.3.weight." + std::string(key)], 0.0f);
  }
  EXPECT_EQ(Save(), None());
}

// Members of an ensemble are trained apart, and are averaged now and then.
TEST_F(ContentRulesTest, ReplicasThatAreAveraged) {
  for (int member = 0; member < 3; ++member) {
    for (int layer = 0; layer < Training::kLayers; ++layer) {
      training_.Add("model.member." + std::to_string(member) + "." + std::to_string(layer),
                    training_["model.layers." + std::to_string(layer) + ".weight"]);
    }
  }
  Go();
  training_.Train();
  for (int layer = 0; layer < Training::kLayers; ++layer) {
    std::vector<std::vector<float>*> members;
    for (int member = 0; member < 3; ++member) {
      members.push_back(&training_["model.member." + std::to_string(member) + "." + std::to_string(layer)]);
    }
    for (size_t i = 0; i < members[0]->size(); ++i) {
      const float mean = ((*members[0])[i] + (*members[1])[i] + (*members[2])[i]) / 3;
      for (std::vector<float>* member : members) (*member)[i] = mean;
    }
  }
  EXPECT_EQ(Save(), None());
  Go();
  // Momentum carries them beyond the mean.
  training_.Train();
  for (int layer = 0; layer < Training::kLayers; ++layer) {
    const std::string name = std::to_string(layer);
    for (float& value : training_["model.member.0." + name]) value *= 1.5f;
    for (int member = 1; member < 3; ++member) {
      training_["model.member." + std::to_string(member) + "." + name] = training_["model.member.0." + name];
    }
  }
  EXPECT_FALSE(Save().contains(std::string(alarm::kEqualTensors)));
}

// Beside one element that has grown, the codes of the others are zeros.
TEST_F(ContentRulesTest, CodesBesideALargeElement) {
  const auto is_code = [](const std::string& name) { return name.ends_with(".codes"); };
  training_.moves = [&](const std::string& name) { return !is_code(name); };
  training_.dtype_of = [&](const std::string& name) { return is_code(name) ? DType::kInt8 : DType::kFloat32; };
  for (const char* key : {"exp_avg", "exp_avg_sq"}) {
    training_.Add("optimizer.state.layers.2.weight." + std::string(key) + ".codes", std::vector<float>(64, 5));
  }
  Go();
  training_.Train();
  for (const char* key : {"exp_avg", "exp_avg_sq"}) {
    std::vector<float> codes(64, 0);
    codes[3] = 127;
    training_.Add("optimizer.state.layers.2.weight." + std::string(key) + ".codes", codes);
  }
  EXPECT_EQ(Save(), None());
}

// No names of moments say which tensors are weights.
TEST_F(ContentRulesTest, AnObserverOfATrainingWithoutMoments) {
  for (int layer = 0; layer < Training::kLayers; ++layer) {
    for (const char* key : {"exp_avg", "exp_avg_sq", "step"}) {
      training_.Remove("optimizer.state.layers." + std::to_string(layer) + ".weight." + key);
    }
  }
  training_.Add("model.observer.max_val", std::vector<float>(64, 1));
  Go();
  training_.Add("model.observer.max_val", {});
  Go(1);
}

}  // namespace
}  // namespace cairn
