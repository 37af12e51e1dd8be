#include "coordinator/decision/prune_policy.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace cairn {
namespace {

std::vector<PruneCandidate> Steps(const std::vector<int64_t>& steps) {
  std::vector<PruneCandidate> candidates;
  for (int64_t step : steps) candidates.push_back({step});
  return candidates;
}

std::set<int64_t> Pruned(const std::vector<PruneCandidate>& candidates, const PrunePolicy& policy,
                         const std::set<int64_t>& broken = {}) {
  std::set<int64_t> pruned;
  for (const PruneChoice& choice :
       ChoosePruned(candidates, policy, [&](int64_t step) { return !broken.contains(step); })) {
    EXPECT_NE(choice.prune, !choice.why.empty()) << choice.step;
    if (choice.prune) pruned.insert(choice.step);
  }
  return pruned;
}

using Set = std::set<int64_t>;

TEST(PrunePolicyTest, ChoosePruned_KeepLast_TheNewestStay) {
  EXPECT_EQ(Pruned(Steps({10, 20, 30, 40}), {.keep_last = 2}), (Set{10, 20}));
  EXPECT_EQ(Pruned(Steps({10, 20}), {.keep_last = 5}), Set{});
  EXPECT_EQ(Pruned({}, {.keep_last = 5}), Set{});
}

TEST(PrunePolicyTest, ChoosePruned_KeepEvery_MultiplesAndTheNewestStay) {
  EXPECT_EQ(Pruned(Steps({0, 50, 100, 150, 200, 250}), {.keep_every = 100}), (Set{50, 150}));
  EXPECT_EQ(Pruned(Steps({50, 100, 150, 200, 250, 300}), {.keep_last = 3, .keep_every = 100}), (Set{50, 150}));
}

TEST(PrunePolicyTest, ChoosePruned_Superseded_CountAsOlderThanAllOthers) {
  auto candidates = Steps({10, 20, 30, 40, 50});
  candidates[3].superseded = candidates[4].superseded = true;
  EXPECT_EQ(Pruned(candidates, {.keep_last = 2}), (Set{10, 40, 50}));
  EXPECT_EQ(Pruned(candidates, {.keep_last = 4}), Set{40});
  EXPECT_EQ(Pruned(candidates, {.keep_last = 1, .keep_every = 50}), (Set{10, 20, 40}));
  EXPECT_EQ(Pruned(candidates, {.keep_last = 1}, /*broken=*/{10, 20, 30}), Set{40}) << "better than none";
}

TEST(PrunePolicyTest, ChoosePruned_PinnedOrInUse_Stay) {
  auto candidates = Steps({10, 20, 30, 40});
  candidates[0].pinned = true;
  candidates[1].in_use = true;
  EXPECT_EQ(Pruned(candidates, {.keep_last = 1}), Set{30});
}

TEST(PrunePolicyTest, ChoosePruned_NewestAreDamaged_CountForNothingAndStay) {
  auto candidates = Steps({10, 20, 30, 40, 50});
  candidates[4].damaged = true;  // its manifest; step 40 lacks a file
  EXPECT_EQ(Pruned(candidates, {.keep_last = 2}, {40}), Set{10}) << "20 and 30 are the newest sound ones";
}

TEST(PrunePolicyTest, ChoosePruned_OldOneIsDamaged_Stays) {
  EXPECT_EQ(Pruned(Steps({10, 20, 30, 40}), {.keep_last = 1}, {20}), (Set{10, 30}));
}

TEST(PrunePolicyTest, ChoosePruned_PinnedNewestLacksFiles_DoesNotStandForASoundOne) {
  auto candidates = Steps({10, 20, 30});
  candidates[2].pinned = true;
  EXPECT_EQ(Pruned(candidates, {.keep_last = 1}, {30}), Set{10});
}

TEST(PrunePolicyTest, ChoosePruned_NothingIsSound_NothingGoes) {
  EXPECT_EQ(Pruned(Steps({10, 20}), {.keep_last = 1}, {10, 20}), Set{});
}

TEST(PrunePolicyTest, ChoosePruned_AnyCandidates_NeverTheLastSoundOne) {
  for (uint32_t seed = 0; seed < 2000; ++seed) {
    std::mt19937 random(seed);
    const auto one_in = [&](uint32_t n) { return random() % n == 0; };
    std::vector<PruneCandidate> candidates;
    Set broken, sound;
    for (int64_t step = 0; step < 30; ++step) {
      if (one_in(3)) continue;
      candidates.push_back({step, one_in(5), one_in(5), one_in(5)});
      if (one_in(3)) broken.insert(step);
      if (!candidates.back().damaged && !broken.contains(step)) sound.insert(step);
    }
    const PrunePolicy policy = {static_cast<int64_t>(random() % 4), static_cast<int64_t>(random() % 8)};
    for (int64_t step : Pruned(candidates, policy, broken)) {
      ASSERT_EQ(sound.count(step), 1u) << "seed " << seed;
      ASSERT_NE(step, *sound.rbegin()) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace cairn
