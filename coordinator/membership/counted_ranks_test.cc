#include "coordinator/membership/counted_ranks.h"

#include <gtest/gtest.h>

#include <random>

namespace cairn {
namespace {

struct Value {
  enum Mark { kOdd, kLarge, kMarks };
  uint32_t marks() const { return static_cast<uint32_t>(number % 2) << kOdd | uint32_t{number > 50} << kLarge; }

  int number = 0;
};

size_t Counted(const CountedRanks<Value>& ranks, Value::Mark mark) {
  size_t count = 0;
  for (const Value& value : ranks) count += value.marks() >> mark & 1;
  return count;
}

TEST(CountedRanksTest, Counts_AfterAnyChanges_AreWhatALookAtAllFinds) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    CountedRanks<Value> ranks;
    ranks.Grow(500);
    for (int i = 0; i < 2000; ++i) {
      const size_t rank = random() % 600;
      if (random() % 500 == 0) ranks.clear();
      if (random() % 100 == 0) ranks.ChangeKept([&](Value& value) { value.number /= 2; });
      ranks.Change(rank, [&](Value& value) { value.number = static_cast<int>(random() % 100); });
      ASSERT_EQ(ranks.count(Value::kOdd), Counted(ranks, Value::kOdd));
      ASSERT_EQ(ranks.count(Value::kLarge), Counted(ranks, Value::kLarge));
    }
  }
}

TEST(CountedRanksTest, All_EveryRankHasTheMark_IsTrue) {
  CountedRanks<Value> ranks;
  ranks.Grow(2);
  ranks.Change(0, [](Value& value) { value.number = 1; });
  EXPECT_FALSE(ranks.all(Value::kOdd));
  ranks.Change(1, [](Value& value) { value.number = 3; });
  EXPECT_TRUE(ranks.all(Value::kOdd));
}

// A mark that is no function of the value alone: this is the fault that the comparison above must see.
struct Fickle {
  enum Mark { kOn, kMarks };
  uint32_t marks() const { return on == *truth ? 1u : 0u; }

  static inline bool kTrue = true;
  bool on = false;
  const bool* truth = &kTrue;
};

TEST(CountedRanksTest, MarkThatChangesByItself_IsCountedWrong) {
  CountedRanks<Fickle> ranks;
  ranks.Change(0, [](Fickle& value) { value.on = true; });
  Fickle::kTrue = false;
  EXPECT_EQ(ranks.count(Fickle::kOn), 1u);
  EXPECT_EQ(ranks[0].marks(), 0u);
  Fickle::kTrue = true;
}

}  // namespace
}  // namespace cairn
