#include "coordinator/alarms/scaled_moments.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "coordinator/alarms/testing/training.h"

namespace cairn {
namespace {

// One weight has the moments of Adam, of gradients that this class draws.
class ScaledMomentsTest : public AlarmsTest {
 protected:
  ScaledMomentsTest() {
    training_.moves = [](const std::string& name) { return !name.starts_with(kOwner) || name.ends_with(".step"); };
    training_.Add(kFirst, std::vector<float>(Training::kElements, 0));
    training_.Add(kSecond, std::vector<float>(Training::kElements, 0));
    for (size_t i = 0; i < Training::kElements; ++i) typical_.push_back(std::exp(Draw()));
    Step(1, 500);
    first_ = First();
    second_ = Second();
  }

  // Takes steps of the optimizer, with gradients of this size.
  void Step(float scale, int count) {
    for (int step = 0; step < count; ++step) {
      for (size_t i = 0; i < Training::kElements; ++i) {
        const float gradient = scale * typical_[i] * Draw();
        First()[i] = 0.9f * First()[i] + 0.1f * gradient;
        Second()[i] = 0.999f * Second()[i] + 0.001f * gradient * gradient;
      }
    }
  }
  // Thousands of steps later.
  void Settle() {
    First() = first_;
    Second() = second_;
  }
  void GoOn(int saves = 8) {
    for (int save = 0; save < saves; ++save) {
      Step(1, 10);
      Go(1);
    }
  }
  static void Multiply(std::vector<float>& moment, float by) {
    for (float& value : moment) value *= by;
  }
  std::vector<float>& First() { return training_[kFirst]; }
  std::vector<float>& Second() { return training_[kSecond]; }
  void ExpectTold(const std::string& name) {
    training_.Train();
    ExpectOne(Save(), alarm::kJump, {"larger than any gradients make them", name + ", written by"});
  }

  static constexpr char kOwner[] = "optimizer.state.layers.4.weight.";
  const std::string kFirst = kOwner + std::string("exp_avg"), kSecond = kFirst + "_sq";

 private:
  float Draw() { return normal_(random_); }

  std::mt19937 random_{3};
  std::normal_distribution<float> normal_;
  std::vector<float> typical_;  // sizes of gradients
  std::vector<float> first_, second_;
};

TEST_F(ScaledMomentsTest, TheFirstOnes) {
  GoOn();
  Step(1, 10);
  Multiply(First(), 1000);
  ExpectTold(kFirst);
}

TEST_F(ScaledMomentsTest, TheSquaredOnes) {
  GoOn();
  Step(1, 10);
  Multiply(Second(), 1100);
  ExpectTold(kSecond);
}

TEST_F(ScaledMomentsTest, Both) {
  GoOn();
  Step(1, 10);
  Multiply(First(), 1100);
  Multiply(Second(), 1100);
  ExpectTold(kSecond);
}

// The loss is a sum from now on, and was a mean.
TEST_F(ScaledMomentsTest, LargerGradients) {
  for (const int steps : {1, 2, 3, 10, 30, 100, 1000}) {
    GoOn();
    Step(500, steps);
    Go(1);
    Settle();
  }
}

TEST_F(ScaledMomentsTest, ASpike) {
  for (const int after : {0, 5, 40}) {
    GoOn();
    Step(1e4f, 1);
    Step(1, after);
    Go(1);
    Settle();
  }
}

// The first moments fade for want of gradients, and the squared ones more slowly.
TEST_F(ScaledMomentsTest, GradientsThatComeBack) {
  for (const int rest : {30, 100, 500}) {
    GoOn();
    Step(0, rest);
    Go(1);
    Step(1, 30);
    Go(1);
  }
}

TEST_F(ScaledMomentsTest, Logarithms) {
  for (float& value : Second()) value = std::log(value);
  Go();
  Multiply(First(), 1000);
  training_.Train();
  EXPECT_EQ(Save(), None());
}

}  // namespace
}  // namespace cairn
