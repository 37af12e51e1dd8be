#include "coordinator/alarms/find_alarms.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "coordinator/alarms/name_groups.h"

namespace cairn {
namespace {

using Random = std::mt19937_64;

// The memory of a training: eight weights with the state of Adam, over two ranks, a data loader's position and random
// generators. Each Train moves all of them a little.
class Training {
 public:
  static constexpr int kLayers = 8;
  static constexpr int kRanks = 2;
  static constexpr size_t kElements = 1024;

  Training() {
    for (int layer = 0; layer < kLayers; ++layer) {
      const std::string name = "layers." + std::to_string(layer) + ".weight";
      tensors_["model." + name] = Normal(1);
      tensors_["optimizer.state." + name + ".exp_avg"] = Normal(0.01f);
      tensors_["optimizer.state." + name + ".exp_avg_sq"] = Normal(0.0001f);
      tensors_["optimizer.state." + name + ".step"] = {0};
    }
    tensors_["model.frozen"] = Normal(1);
    objects_["loader"] = {1};
    objects_["rng"] = {11, 12};
    objects_["configuration"] = {5};
  }

  std::vector<float>& operator[](const std::string& name) { return tensors_.at(name); }
  std::vector<uint32_t>& Object(const std::string& name) { return objects_[name]; }
  void Remove(const std::string& name) { tensors_.erase(name); }
  void Rename(const std::string& from, const std::string& to) {
    auto node = tensors_.extract(from);
    node.key() = to;
    tensors_.insert(std::move(node));
  }

  void Train() {
    for (auto& [name, values] : tensors_) {
      if (name == "model.frozen" || !moves(name)) continue;
      if (name.ends_with(".step")) {
        values[0] += 1;
      } else if (name.starts_with("optimizer")) {
        for (float& value : values) value = 0.5f * value + 0.005f * Draw();
      } else {
        for (float& value : values) value += step_size * Draw();
      }
    }
    ++objects_["loader"][0];
    for (uint32_t& state : objects_["rng"]) state += 7;
  }
  // Whether Train changes this tensor.
  std::function<bool(const std::string& name)> moves = [](const std::string&) { return true; };

  // Half of each tensor is rank 0's and half rank 1's. `stale` is the state that a rank hands over in the place of its
  // own.
  StateSummary State(int64_t step, const Training* stale = nullptr, int stale_rank = -1) const {
    StateSummary state;
    state.step = step;
    state.attempt = 1;
    state.line = line;
    state.world_size = kRanks;
    state.plan_digest = "plan";
    for (const auto& [name, values] : tensors_) {
      StateSummary::Tensor tensor;
      tensor.name = name;
      tensor.dtype = DType::kFloat32;
      tensor.shape = {static_cast<int64_t>(values.size())};
      tensor.first_shard = static_cast<uint32_t>(state.shards.size());
      for (int rank = 0; rank < kRanks; ++rank) {
        const std::vector<float>& from = stale != nullptr && rank == stale_rank ? stale->tensors_.at(name) : values;
        const size_t begin = values.size() * static_cast<size_t>(rank) / kRanks;
        const size_t end = values.size() * static_cast<size_t>(rank + 1) / kRanks;
        if (begin == end) continue;
        const auto* bytes = reinterpret_cast<const char*>(from.data() + begin);
        StatisticsOf statistics(DType::kFloat32);
        statistics.Add(begin, bytes, end - begin);
        const auto crc = static_cast<uint32_t>(std::hash<std::string>()(std::string(bytes, (end - begin) * 4)));
        tensor.summary.Add({uint64_t{crc} << (rank == 0 ? 0 : 7), statistics.value()});
        state.shards.push_back({crc, rank});
        ++tensor.shard_count;
      }
      state.tensors.push_back(std::move(tensor));
    }
    for (const auto& [name, crcs] : objects_) state.objects.push_back({name, crcs.size() > 1, crcs, {}});
    return state;
  }

  uint64_t line = 1;
  float step_size = 0.01f;  // of weights

 private:
  float Draw() { return std::normal_distribution<float>()(random_); }
  std::vector<float> Normal(float scale) {
    std::vector<float> values(kElements);
    for (float& value : values) value = scale * Draw();
    return values;
  }

  Random random_{7};
  std::map<std::string, std::vector<float>> tensors_;
  std::map<std::string, std::vector<uint32_t>> objects_;
};

class FindAlarmsTest : public ::testing::Test {
 protected:
  // Saves the state, and returns the alarms by kind.
  std::map<std::string, std::string> Save(const Training* stale = nullptr, int stale_rank = -1) {
    StateSummary now = training_.State(++step_, stale, stale_rank);
    std::map<std::string, std::string> found;
    for (const Alarm& alarm : FindAlarms(has_before_ ? &before_ : nullptr, now)) {
      EXPECT_TRUE(found.emplace(alarm.kind, alarm.message).second) << alarm.kind;
    }
    before_ = std::move(now);
    has_before_ = true;
    return found;
  }
  // Trains and saves so often without an alarm.
  void Go(int saves = 8) {
    for (int i = 0; i < saves; ++i) {
      training_.Train();
      EXPECT_EQ(Save(), None()) << "save " << i;
    }
  }
  using Found = std::map<std::string, std::string>;
  static Found None() { return {}; }
  // Expects one alarm of this kind alone, whose message has these words.
  static void ExpectOne(const Found& found, std::string_view kind, const std::vector<std::string>& words) {
    ASSERT_EQ(found.size(), 1) << ::testing::PrintToString(found);
    EXPECT_EQ(found.begin()->first, kind);
    for (const std::string& word : words) {
      EXPECT_NE(found.begin()->second.find(word), std::string::npos) << word << " in " << found.begin()->second;
    }
  }

  Training training_;

 private:
  int64_t step_ = 0;
  StateSummary before_;
  bool has_before_ = false;
};

TEST_F(FindAlarmsTest, AQuietTraining) { Go(60); }

TEST_F(FindAlarmsTest, TheSameStepAgain) {
  Go();
  ExpectOne(Save(), alarm::kSameStep, {"step 8", "32 tensors", "all objects"});
}

// The trainer saves between two steps of the optimizer, as with accumulated gradients: its counters go on.
TEST_F(FindAlarmsTest, SavesWithinAStepOfTheOptimizer) {
  for (int i = 0; i < 40; ++i) {
    if (i % 4 == 0) training_.Train();
    ++training_.Object("loader")[0];
    EXPECT_EQ(Save(), None()) << i;
  }
}

TEST_F(FindAlarmsTest, TensorsThatStandStillForLong) {
  Go();
  ++training_.Object("loader")[0];
  EXPECT_EQ(Save(), None());  // a step that was skipped
  ++training_.Object("loader")[0];
  ExpectOne(Save(), alarm::kSameStep, {"for 2 saves"});
  ++training_.Object("loader")[0];
  EXPECT_EQ(Save(), None());  // it was said
}

TEST_F(FindAlarmsTest, ARankThatHandsOverAnOldCopy) {
  Go();
  const Training old = training_;
  training_.Train();
  ExpectOne(Save(&old, 1), alarm::kStaleRank, {"rank 1 wrote", "step 8", "layers.*.weight (8)"});
}

TEST_F(FindAlarmsTest, AFrozenOptimizer) {
  Go();
  training_.moves = [](const std::string& name) { return !name.starts_with("optimizer"); };
  training_.Train();
  ExpectOne(Save(), alarm::kFrozenOptimizer, {"model.layers.*.weight (8)"});
}

TEST_F(FindAlarmsTest, AnExpertWithoutTokens) {
  Go();
  training_.moves = [](const std::string& name) { return name.find("layers.3.") == std::string::npos; };
  Go(10);
}

TEST_F(FindAlarmsTest, AWeightThatTheOptimizerDoesNotMove) {
  Go();
  training_.moves = [](const std::string& name) { return name != "model.layers.2.weight"; };
  training_.Train();
  ExpectOne(Save(), alarm::kStaleTensor, {"model.layers.2.weight"});
}

// With a learning rate of 0 all weights stand still.
TEST_F(FindAlarmsTest, ALearningRateOfZero) {
  Go();
  training_.moves = [](const std::string& name) { return !name.starts_with("model"); };
  Go(10);
}

// The names do not say to which weights the state belongs.
TEST_F(FindAlarmsTest, AFrozenOptimizerWithNumbers) {
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
TEST_F(FindAlarmsTest, TensorsThatHaveJustBegunToMove) {
  training_.moves = [](const std::string& name) { return name.find(".0.") == std::string::npos; };
  Go();
  training_.moves = [](const std::string& name) { return name.find(".0.") != std::string::npos; };
  training_.Train();
  --training_.Object("loader")[0];
  EXPECT_FALSE(Save().contains(std::string(alarm::kSameStep)));
}

TEST_F(FindAlarmsTest, MomentsOfOneShard) {
  Go();
  training_.Train();
  std::vector<float>& moments = training_["optimizer.state.layers.5.weight.exp_avg"];
  std::fill(moments.begin() + Training::kElements / 2, moments.end(), 0.0f);
  ExpectOne(Save(), alarm::kZeroMoments, {"optimizer.state.layers.5.weight.exp_avg"});
}

TEST_F(FindAlarmsTest, MomentsOfZero) {
  Go();
  training_.Train();
  std::ranges::fill(training_["optimizer.state.layers.5.weight.exp_avg"], 0.0f);
  ExpectOne(Save(), alarm::kZeroMoments, {"optimizer.state.layers.5.weight.exp_avg", "step 8"});
}

TEST_F(FindAlarmsTest, ATrainingThatBeginsWithAnOptimizerOfItsOwn) {
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

TEST_F(FindAlarmsTest, NotANumber) {
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
TEST_F(FindAlarmsTest, AMask) {
  training_["model.frozen"][5] = -INFINITY;
  Go();
}

TEST_F(FindAlarmsTest, ATransposedMatrix) {
  Go();
  training_.Train();
  std::vector<float>& weight = training_["model.layers.4.weight"];
  const std::vector<float> was = weight;
  for (size_t i = 0; i < 32; ++i) {
    for (size_t j = 0; j < 32; ++j) weight[j * 32 + i] = was[i * 32 + j];
  }
  ExpectOne(Save(), alarm::kJump, {"model.layers.4.weight", "changed places"});
}

TEST_F(FindAlarmsTest, TwoWeightsThatChangePlaces) {
  Go();
  training_.Train();
  std::swap(training_["model.layers.4.weight"], training_["model.layers.5.weight"]);
  ExpectOne(Save(), alarm::kJump, {"model.layers.*.weight (2)", "changed places"});
}

TEST_F(FindAlarmsTest, AWeightThatIsAllZeros) {
  Go();
  training_.Train();
  std::ranges::fill(training_["model.layers.4.weight"], 0.0f);
  ExpectOne(Save(), alarm::kJump, {"all zeros now"});
  training_.moves = [](const std::string& name) { return name != "model.layers.4.weight"; };
  training_.Train();
  EXPECT_TRUE(Save().contains(std::string(alarm::kJump))) << "it is so still";
}

TEST_F(FindAlarmsTest, AFlippedBitOfAnExponent) {
  Go();
  training_.Train();
  training_["model.layers.4.weight"][3] = 3.4e37f;
  ExpectOne(Save(), alarm::kJump, {"model.layers.4.weight has an element of 3.4e+37"});
}

// More training lies between two saves than ever before.
TEST_F(FindAlarmsTest, SavesAtUnevenDistances) {
  Go(12);
  for (int i = 0; i < 2000; ++i) training_.Train();
  EXPECT_EQ(Save(), None());
}

// All weights are wrong.
TEST_F(FindAlarmsTest, AnotherModel) {
  Go();
  training_.Train();
  for (int layer = 0; layer < Training::kLayers; ++layer) {
    std::ranges::reverse(training_["model.layers." + std::to_string(layer) + ".weight"]);
  }
  ExpectOne(Save(), alarm::kJump, {"model.layers.*.weight ("});
}

TEST_F(FindAlarmsTest, AWeightThatExplodes) {
  Go();
  training_.Train();
  for (float& value : training_["model.layers.4.weight"]) value *= 40;
  ExpectOne(Save(), alarm::kJump, {"its norm was"});
}

// A training that moves far from the begin on.
TEST_F(FindAlarmsTest, ALargeLearningRate) {
  training_.step_size = 0.8f;
  Go(30);
}

TEST_F(FindAlarmsTest, NamesAndShapesThatDrift) {
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

TEST_F(FindAlarmsTest, ALoaderThatStandsStill) {
  Go();
  training_.Train();
  --training_.Object("loader")[0];
  ExpectOne(Save(), alarm::kCounterStopped, {"loader"});
}

TEST_F(FindAlarmsTest, ValuesThatNeedNotCount) {
  training_.Object("optimizer.param_groups") = {1};
  for (int i = 0; i < 12; ++i) {
    if (i < 8) ++training_.Object("optimizer.param_groups")[0];  // the rate warms up
    Go(1);
  }
}

TEST_F(FindAlarmsTest, TheLoaderOfOneRank) {
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
TEST_F(FindAlarmsTest, StepsThatGoBackInANewRun) {
  Go();
  training_.line = 2;
  training_.Train();
  training_["optimizer.state.layers.0.weight.step"] = {0};
  ExpectOne(Save(), alarm::kCounterStopped, {"layers.0.weight.step"});
}

TEST_F(FindAlarmsTest, AStepThatGoesBack) {
  Go();
  training_.Train();
  training_["optimizer.state.layers.0.weight.step"] = {2};
  ExpectOne(Save(), alarm::kCounterStopped, {"smaller", "layers.0.weight.step"});
}

TEST_F(FindAlarmsTest, AnExpertInTheOthersPlace) {
  Go();
  training_.Train();
  training_["model.layers.6.weight"] = training_["model.layers.7.weight"];
  const Found found = Save();
  EXPECT_TRUE(found.contains(std::string(alarm::kEqualTensors))) << ::testing::PrintToString(found);
  EXPECT_NE(found.at(std::string(alarm::kEqualTensors)).find("model.layers.6.weight = model.layers.7.weight"),
            std::string::npos);
}

// Weights that are equal from the begin on are tied, or were copied.
TEST_F(FindAlarmsTest, TiedWeights) {
  training_["model.layers.6.weight"] = training_["model.layers.7.weight"];
  training_.moves = [](const std::string& name) {
    return name.find(".6.") == std::string::npos && name.find(".7.") == std::string::npos;
  };
  Go();
}

TEST_F(FindAlarmsTest, OneGeneratorForAll) {
  Go();
  training_.Train();
  training_.Object("rng") = {99, 99};
  ExpectOne(Save(), alarm::kEqualRandomStates, {"rng"});
}

TEST(NameGroupsTest, Groups) {
  EXPECT_EQ(NameGroups({"a.1", "a.2", "head"}), "a.* (2), head");
  EXPECT_EQ(NameGroups({"a", "b", "c", "d", "e", "f"}), "a, b, c, d and 2 more kinds");
}

}  // namespace
}  // namespace cairn
