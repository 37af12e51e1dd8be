#include "corpus/sft/packing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "common/status/reason.h"

namespace cairn::corpus {
namespace {

using testing::ElementsAre;

std::vector<std::vector<uint32_t>> PacksOf(const Packing& packing) {
  std::vector<std::vector<uint32_t>> packs;
  for (size_t i = 0; i < packing.packs(); ++i) {
    packs.emplace_back(packing.samples.begin() + packing.firsts[i], packing.samples.begin() + packing.firsts[i + 1]);
  }
  return packs;
}

const std::vector<uint32_t> kLengths = {3, 5, 2, 7, 1, 4, 4, 6, 2, 0, 8, 3};

// What megatron-bridge 0.3.1 gives with numpy.random.seed(7).
TEST(PackSamplesTest, Shuffled_GivesThePacksOfMegatronBridge) {
  const auto packing = PackSamples(kLengths, 10, PackOrder::kShuffled, 7, nullptr);
  ASSERT_TRUE(packing.ok()) << packing.status();
  EXPECT_THAT(PacksOf(*packing), ElementsAre(ElementsAre(6, 2, 0, 9, 4), ElementsAre(3, 8), ElementsAre(10),
                                             ElementsAre(1, 5), ElementsAre(7, 11)));
}

TEST(PackSamplesTest, Decreasing_GivesThePacksOfMegatronBridge) {
  const auto packing = PackSamples(kLengths, 10, PackOrder::kDecreasing, 7, nullptr);
  ASSERT_TRUE(packing.ok()) << packing.status();
  EXPECT_THAT(PacksOf(*packing), ElementsAre(ElementsAre(10, 8, 9), ElementsAre(3, 0), ElementsAre(7, 6),
                                             ElementsAre(1, 5, 4), ElementsAre(11, 2)));
  EXPECT_EQ(packing->longest_sample, 8u);
  EXPECT_EQ(packing->tokens, 45u);
  EXPECT_EQ(packing->shortest_pack, 5u);
  EXPECT_EQ(packing->most_samples, 3u);
}

TEST(PackSamplesTest, EachSampleStandsOnce_AndNoPackIsTooLong) {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    std::minstd_rand random(seed);
    const auto pack_size = static_cast<uint32_t>(1 + random() % 300);
    std::vector<uint32_t> lengths(1 + random() % 2000);
    for (uint32_t& length : lengths) length = static_cast<uint32_t>(random() % (pack_size + 1));
    const auto order = seed % 2 == 0 ? PackOrder::kShuffled : PackOrder::kDecreasing;
    const auto packing = PackSamples(lengths, pack_size, order, seed, nullptr);
    ASSERT_TRUE(packing.ok()) << packing.status();
    std::vector<uint32_t> seen = packing->samples;
    std::ranges::sort(seen);
    for (uint32_t i = 0; i < lengths.size(); ++i) ASSERT_EQ(seen[i], i) << "seed " << seed;
    std::vector<uint32_t> room;
    for (const auto& pack : PacksOf(*packing)) {
      uint32_t tokens = 0;
      for (const uint32_t sample : pack) tokens += lengths[sample];
      ASSERT_LE(tokens, pack_size) << "seed " << seed;
      // It was the first pack with room: what opened this pack fits in none before.
      for (const uint32_t before : room) ASSERT_LT(before, lengths[pack.front()]) << "seed " << seed;
      room.push_back(pack_size - tokens);
    }
  }
}

TEST(PackSamplesTest, NoSamples_AreRefused) {
  EXPECT_TRUE(HasReason(PackSamples({}, 10, PackOrder::kShuffled, 1, nullptr).status(), Reason::kBadRequest));
}

TEST(PackSamplesTest, StopIsSet_Ends) {
  const std::atomic<bool> stop = true;
  EXPECT_TRUE(HasReason(PackSamples(kLengths, 10, PackOrder::kShuffled, 1, &stop).status(), Reason::kInterrupted));
}

}  // namespace
}  // namespace cairn::corpus
