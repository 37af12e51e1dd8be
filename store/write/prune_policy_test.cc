#include "store/write/prune_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <random>
#include <set>
#include <utility>

namespace cairn {
namespace {

std::vector<PruneCandidate> Steps(const std::vector<int64_t>& steps) {
  std::vector<PruneCandidate> candidates;
  for (int64_t step : steps) candidates.push_back({step});
  return candidates;
}

// Whoever deletes looks at each of them, and leaves those in `broken`.
std::set<int64_t> Pruned(const std::vector<PruneCandidate>& candidates, const PrunePolicy& policy,
                         const std::set<int64_t>& broken = {}) {
  std::set<int64_t> pruned;
  for (const PruneChoice& choice :
       ChoosePruned(candidates, policy, [&](int64_t step) { return !broken.contains(step); })) {
    EXPECT_NE(choice.prune, !choice.why.empty()) << choice.step;
    if (choice.prune && !broken.contains(choice.step)) pruned.insert(choice.step);
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

TEST(PrunePolicyTest, ChoosePruned_Alarms_TheNewestWithoutAnyStays) {
  auto candidates = Steps({10, 20, 30, 40});
  candidates[2].alarmed = candidates[3].alarmed = true;
  EXPECT_EQ(Pruned(candidates, {.keep_last = 1}), (Set{10, 30}));
  EXPECT_EQ(Pruned(candidates, {.keep_last = 1}, /*broken=*/{20}), Set{30}) << "20 cannot be loaded";
  candidates[3].alarmed = false;
  EXPECT_EQ(Pruned(candidates, {.keep_last = 1}), (Set{10, 20, 30})) << "the newest has none";
  for (PruneCandidate& candidate : candidates) candidate.alarmed = true;
  EXPECT_EQ(Pruned(candidates, {.keep_last = 1}), (Set{10, 20, 30})) << "all have some";
}

TEST(PrunePolicyTest, ChoosePruned_Tagged_Stay) {
  auto candidates = Steps({10, 20, 30});
  candidates[0].tagged = true;
  EXPECT_EQ(Pruned(candidates, {.keep_last = 1}), Set{20});
}

TEST(PrunePolicyTest, StepsThatAwaitTheMirrorStayUpToABound) {
  std::vector<PruneCandidate> candidates = Steps({1, 2, 3, 4, 5, 6, 7});
  for (size_t i : {0, 1, 2, 3, 5, 6}) candidates[i].awaits_mirror = true;
  const auto always = [](int64_t) { return true; };
  const std::vector<PruneChoice> choices = ChoosePruned(candidates, {.keep_last = 1}, always);
  std::set<int64_t> kept;
  for (const PruneChoice& choice : choices) {
    if (!choice.prune) kept.insert(choice.step);
  }
  EXPECT_EQ(kept, (std::set<int64_t>{3, 4, 6, 7})) << "7 is the newest, and three others wait";
  EXPECT_NE(choices[5].why.find("mirror"), std::string::npos);
}

std::vector<PruneCandidate> WithLoss(const std::vector<std::pair<int64_t, double>>& losses) {
  std::vector<PruneCandidate> candidates;
  for (const auto& [step, loss] : losses) {
    candidates.push_back({.step = step, .metrics = {{"cost", -loss}, {"loss", loss}}});
  }
  return candidates;
}

TEST(PrunePolicyTest, ChoosePruned_KeepBest_TheBestAndTheNewestStay) {
  const auto candidates = WithLoss({{10, 3}, {20, 1}, {30, 2}, {40, 5}});
  EXPECT_EQ(Pruned(candidates, {.keep_best = BestRule{"loss", false}}), (Set{10, 30}));
  EXPECT_EQ(Pruned(candidates, {.keep_best = BestRule{"cost", true}}), (Set{10, 30}));
  EXPECT_EQ(Pruned(candidates, {.keep_last = 2, .keep_best = BestRule{"loss", true}}), (Set{10, 20}));
}

TEST(PrunePolicyTest, ChoosePruned_KeepBest_OfEqualOnesTheNewest) {
  EXPECT_EQ(Pruned(WithLoss({{10, 1}, {20, 1}, {30, 2}, {40, 5}}), {.keep_best = BestRule{"loss", false}}),
            (Set{10, 30}));
}

TEST(PrunePolicyTest, ChoosePruned_TheBestIsDamaged_TheNextBestStays) {
  auto candidates = WithLoss({{10, 1}, {20, 2}, {30, 3}, {40, 5}});
  EXPECT_EQ(Pruned(candidates, {.keep_best = BestRule{"loss", false}}, {10}), Set{30}) << "10 lacks files, and stays";
  candidates[0].damaged = true;
  EXPECT_EQ(Pruned(candidates, {.keep_best = BestRule{"loss", false}}), Set{30}) << "its manifest";
}

TEST(PrunePolicyTest, ChoosePruned_NaN_IsNeverTheBest) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  for (const bool highest : {false, true}) {
    EXPECT_EQ(Pruned(WithLoss({{10, 7}, {20, nan}, {30, 7}, {40, nan}}), {.keep_best = BestRule{"loss", highest}}),
              (Set{10, 20}));
  }
  EXPECT_EQ(Pruned(WithLoss({{10, 7}, {20, infinity}, {40, nan}}), {.keep_best = BestRule{"loss", false}}), Set{20});
}

TEST(PrunePolicyTest, ChoosePruned_NoStepHasTheMetric_NothingGoes) {
  const auto candidates = WithLoss({{10, 3}, {20, 1}, {30, 2}});
  EXPECT_EQ(Pruned(candidates, {.keep_last = 1, .keep_best = BestRule{"lss", false}}), Set{});
  EXPECT_EQ(Pruned(Steps({10, 20}), {.keep_best = BestRule{"loss", false}}), Set{});
}

TEST(PrunePolicyTest, ChoosePruned_NewestAreDamaged_CountForNothingAndStay) {
  auto candidates = Steps({10, 20, 30, 40, 50});
  candidates[4].damaged = true;  // its manifest; step 40 lacks a file
  EXPECT_EQ(Pruned(candidates, {.keep_last = 2}, {40}), Set{10}) << "20 and 30 are the newest valid ones";
}

TEST(PrunePolicyTest, ChoosePruned_OldOnes_AreNotAskedForTheirFiles) {
  std::vector<int64_t> asked;
  const auto choices = ChoosePruned(Steps({10, 20, 30, 40}), {.keep_last = 2}, [&](int64_t step) {
    asked.push_back(step);
    return true;
  });
  EXPECT_TRUE(choices[0].prune && choices[1].prune);
  EXPECT_EQ(asked, (std::vector<int64_t>{40, 30})) << "whoever deletes the others looks at each";
}

TEST(PrunePolicyTest, ChoosePruned_PinnedNewestLacksFiles_DoesNotStandForASoundOne) {
  auto candidates = Steps({10, 20, 30});
  candidates[2].pinned = true;
  EXPECT_EQ(Pruned(candidates, {.keep_last = 1}, {30}), Set{10});
}

TEST(PrunePolicyTest, ChoosePruned_NothingIsValid_NothingGoes) {
  EXPECT_EQ(Pruned(Steps({10, 20}), {.keep_last = 1}, {10, 20}), Set{});
}

TEST(PrunePolicyTest, ChoosePruned_AnyCandidates_NeverTheLastValidOne) {
  for (uint32_t seed = 0; seed < 2000; ++seed) {
    std::mt19937 random(seed);
    const auto one_in = [&](uint32_t n) { return random() % n == 0; };
    std::vector<PruneCandidate> candidates;
    Set broken, valid;
    for (int64_t step = 0; step < 30; ++step) {
      if (one_in(3)) continue;
      candidates.push_back({step, one_in(5), one_in(5), one_in(5), one_in(5), one_in(5), {}});
      if (!one_in(4)) candidates.back().metrics = {{"loss", static_cast<double>(random() % 5)}};
      if (one_in(3)) broken.insert(step);
      if (!candidates.back().damaged && !broken.contains(step)) valid.insert(step);
    }
    PrunePolicy policy = {static_cast<int64_t>(random() % 4), static_cast<int64_t>(random() % 8), std::nullopt};
    if (one_in(2)) policy.keep_best = BestRule{"loss", one_in(2)};
    // The newest valid one of those that are not superseded, if there is one, and the best value of any.
    std::optional<int64_t> newest, newest_superseded;
    std::optional<double> best;
    for (const PruneCandidate& candidate : candidates) {
      if (!valid.contains(candidate.step)) continue;
      (candidate.superseded ? newest_superseded : newest) = candidate.step;
      if (candidate.metrics.empty() || !policy.keep_best.has_value()) continue;
      const double value = candidate.metrics[0].value;
      if (!best.has_value() || (policy.keep_best->highest ? value > *best : value < *best)) best = value;
    }
    const Set pruned = Pruned(candidates, policy, broken);
    for (int64_t step : pruned) {
      ASSERT_EQ(valid.count(step), 1u) << "seed " << seed;
      ASSERT_NE(step, newest.has_value() ? *newest : *newest_superseded) << "seed " << seed;
    }
    if (policy.keep_best.has_value() && !best.has_value()) {
      ASSERT_EQ(pruned, Set{}) << "seed " << seed;
    }
    const bool best_stays = std::any_of(candidates.begin(), candidates.end(), [&](const PruneCandidate& candidate) {
      return valid.contains(candidate.step) && !pruned.contains(candidate.step) && !candidate.metrics.empty() &&
             candidate.metrics[0].value == *best;
    });
    ASSERT_TRUE(!best.has_value() || best_stays) << "seed " << seed;
  }
}

}  // namespace
}  // namespace cairn
