#include "corpus/sampler/random_state.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <utility>
#include <vector>

namespace cairn::corpus {
namespace {

// The standard library's MT19937 is an independent generator, and this is the textbook loop of numpy's shuffle.
template <typename T>
void ShuffleSlowly(std::mt19937& random, std::vector<T>& values) {
  for (size_t i = values.size(); i-- > 1;) {
    uint64_t mask = 1;
    while (mask < i) mask = mask << 1 | 1;
    uint64_t place;
    do {
      place = random() & mask;
    } while (place > i);
    std::swap(values[i], values[place]);
  }
}

TEST(RandomStateTest, Next_AnySeed_IsTheStandardGenerator) {
  for (const uint32_t seed : {0u, 1u, 1234u, 0x80000000u, 0xffffffffu}) {
    RandomState random(seed);
    std::mt19937 standard(seed);
    for (int i = 0; i < 5000; ++i) ASSERT_EQ(random.Next(), standard()) << "seed " << seed << ", draw " << i;
  }
}

// numpy.random.RandomState(1234).shuffle(numpy.arange(10)) of numpy 2.4, twice.
TEST(RandomStateTest, Shuffle_TenNumbers_AreNumpys) {
  std::vector<uint32_t> values(10);
  std::iota(values.begin(), values.end(), 0);
  const std::atomic<bool> stop = false;
  RandomState random(1234);
  ASSERT_TRUE(random.Shuffle(std::span<uint32_t>(values), stop, nullptr));
  EXPECT_EQ(values, (std::vector<uint32_t>{7, 2, 9, 1, 0, 8, 4, 5, 6, 3}));
  ASSERT_TRUE(random.Shuffle(std::span<uint32_t>(values), stop, nullptr));
  EXPECT_EQ(values, (std::vector<uint32_t>{5, 1, 8, 2, 0, 6, 7, 9, 4, 3}));
}

// The sizes lie around powers of two, where the mask changes, and around the 624 draws of the generator.
TEST(RandomStateTest, Shuffle_AnySize_EqualsTheSimpleLoop) {
  const std::atomic<bool> stop = false;
  for (const size_t size : {0, 1, 2, 3, 4, 5, 95, 96, 97, 98, 127, 128, 129, 623, 624, 625, 720, 721, 4096, 65537}) {
    for (uint32_t seed = 0; seed < 20; ++seed) {
      RandomState random(seed);
      std::mt19937 standard(seed);
      std::vector<uint32_t> values(size), expected(size);
      std::vector<int64_t> wide(size), expected_wide(size);
      std::iota(values.begin(), values.end(), 0);
      std::iota(wide.begin(), wide.end(), 0);
      expected = values;
      expected_wide = wide;
      ASSERT_TRUE(random.Shuffle(std::span<uint32_t>(values), stop, nullptr));
      ASSERT_TRUE(random.Shuffle(std::span<int64_t>(wide), stop, nullptr));
      ShuffleSlowly(standard, expected);
      ShuffleSlowly(standard, expected_wide);
      ASSERT_EQ(values, expected) << "size " << size << ", seed " << seed;
      ASSERT_EQ(wide, expected_wide) << "size " << size << ", seed " << seed;
      ASSERT_EQ(random.Next(), standard()) << "the next shuffle would begin elsewhere";
    }
  }
}

TEST(RandomStateTest, Shuffle_ToTheEnd_CountsEachValue) {
  std::vector<uint32_t> values(300'000);
  std::atomic<uint64_t> done = 0;
  RandomState(7).Shuffle(std::span<uint32_t>(values), std::atomic<bool>(false), &done);
  EXPECT_EQ(done, values.size());
}

TEST(RandomStateTest, Shuffle_Stopped_SaysSo) {
  std::vector<uint32_t> values(300'000);
  EXPECT_FALSE(RandomState(7).Shuffle(std::span<uint32_t>(values), std::atomic<bool>(true), nullptr));
}

}  // namespace
}  // namespace cairn::corpus
