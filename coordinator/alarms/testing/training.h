// A small training for tests of alarms, and what is said of its steps.
#ifndef CAIRN_COORDINATOR_ALARMS_TESTING_TRAINING_H_
#define CAIRN_COORDINATOR_ALARMS_TESTING_TRAINING_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/format/alarm.h"
#include "coordinator/alarms/find_alarms.h"
#include "coordinator/alarms/state_summary.h"

namespace cairn {

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
  void Add(const std::string& name, std::vector<float> values) { tensors_[name] = std::move(values); }
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

  // What a tensor is said to be. Its values are float32 here.
  std::function<DType(const std::string& name)> dtype_of = [](const std::string&) { return DType::kFloat32; };

  // The names that a rank hands over of an old state.
  std::function<bool(const std::string& name)> hands_over = [](const std::string&) { return true; };

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
      tensor.dtype = dtype_of(name);
      tensor.shape = {static_cast<int64_t>(values.size())};
      tensor.first_shard = static_cast<uint32_t>(state.shards.size());
      for (int rank = 0; rank < kRanks; ++rank) {
        const std::vector<float>& from =
            stale != nullptr && rank == stale_rank && hands_over(name) ? stale->tensors_.at(name) : values;
        const size_t begin = values.size() * static_cast<size_t>(rank) / kRanks;
        const size_t end = values.size() * static_cast<size_t>(rank + 1) / kRanks;
        if (begin == end) continue;
        const auto* bytes = reinterpret_cast<const char*>(from.data() + begin);
        StatisticsOf statistics(DType::kFloat32);
        statistics.Add(begin, bytes, end - begin);
        const auto crc = static_cast<uint32_t>(std::hash<std::string>()(std::string(bytes, (end - begin) * 4)));
        tensor.summary.Add({uint64_t{crc} << (rank == 0 ? 0 : 7), statistics.value()});
        const bool zeros = std::all_of(from.data() + begin, from.data() + end, [](float value) { return value == 0; });
        state.shards.push_back({crc, rank, zeros});
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

  std::mt19937_64 random_{7};
  std::map<std::string, std::vector<float>> tensors_;
  std::map<std::string, std::vector<uint32_t>> objects_;
};

// Saves a training step by step, and hears the alarms.
class AlarmsTest : public ::testing::Test {
 protected:
  // Saves the state, and returns the alarms by kind.
  std::map<std::string, std::string> Save(const Training* stale = nullptr, int stale_rank = -1) {
    StateSummary now = training_.State(++step_, stale, stale_rank);
    std::map<std::string, std::string> found;
    for (const Alarm& alarm : FindAlarms(has_before_ ? &before_ : nullptr, now)) {
      EXPECT_TRUE(found.emplace(alarm.kind, alarm.message).second) << alarm.kind;
      const std::string steps = "(steps " + std::to_string(step_ - 1) + " and " + std::to_string(step_) + " compared)";
      EXPECT_TRUE(alarm.message.ends_with(steps)) << alarm.message;
      // An object such as a loader is of all ranks.
      const bool ranks = alarm.message.find("written by") != std::string::npos ||
                         alarm.message.find("wrote") != std::string::npos || alarm.kind == alarm::kCounterStopped;
      EXPECT_TRUE(ranks) << alarm.message;
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

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_ALARMS_TESTING_TRAINING_H_
