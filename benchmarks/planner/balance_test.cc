// Writers are balanced on the layouts of two well-known runs: nobody writes more than 1.02 times the mean, but for a
// shard that is larger by itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "benchmarks/planner/known_models.h"
#include "common/base/digest.h"
#include "planner/save/save_plan.h"

namespace cairn {
namespace {

struct Loads {
  uint64_t max = 0, largest_shard = 0, total = 0, moved = 0;
  double mean = 0;
};

Loads LoadsOf(const std::vector<LayoutDescription>& layouts, MovePolicy moves) {
  std::vector<std::string> bytes, digests;
  for (const LayoutDescription& layout : layouts) bytes.push_back(SerializeLayout(layout));
  for (const std::string& layout : bytes) digests.push_back(Digest(layout));
  std::vector<RankInput> inputs;
  std::vector<std::string> nodes;
  for (size_t r = 0; r < bytes.size(); ++r) {
    inputs.push_back({static_cast<int>(r), absl::StrCat("node", r / 8), bytes[r], digests[r]});
  }
  SaveOptions options;
  options.moves = moves;
  const auto plan = MakeSavePlan(inputs, options);
  EXPECT_TRUE(plan.ok()) << plan.status();
  Loads loads;
  const std::vector<uint64_t> by_rank = plan->rank_bytes();
  loads.total = std::accumulate(by_rank.begin(), by_rank.end(), uint64_t{0});
  loads.max = *std::max_element(by_rank.begin(), by_rank.end());
  loads.mean = static_cast<double>(loads.total) / static_cast<double>(by_rank.size());
  for (const PlannedFileView& file : plan->Files()) {
    for (const PlannedItem& item : file.items) loads.largest_shard = std::max(loads.largest_shard, item.item.bytes());
  }
  for (const PlannedMove& move : plan->Moves()) loads.moved += move.item.bytes();
  std::printf("  %zu ranks, %.1f GB: heaviest %.3f of the mean, largest shard %.3f of it, moved %.2f %%\n",
              by_rank.size(), static_cast<double>(loads.total) / 1e9, static_cast<double>(loads.max) / loads.mean,
              static_cast<double>(loads.largest_shard) / loads.mean,
              100.0 * static_cast<double>(loads.moved) / static_cast<double>(loads.total));
  return loads;
}

void ExpectBalanced(const Loads& loads) {
  EXPECT_LE(static_cast<double>(loads.max), std::max(1.02 * loads.mean, static_cast<double>(loads.largest_shard)));
}

TEST(BalanceTest, MakeSavePlan_Llama405B_HeaviestWriterIsBounded) {
  const auto layouts = Llama405B(4);
  const Loads alone = LoadsOf(layouts, MovePolicy::kNever);
  const Loads moved = LoadsOf(layouts, MovePolicy::kAuto);
  EXPECT_EQ(alone.total, moved.total);
  // There are 405.8e9 parameters of 2 + 12 bytes each.
  EXPECT_NEAR(static_cast<double>(moved.total), 14 * 405.85e9, 14 * 0.2e9);
  ExpectBalanced(moved);
}

TEST(BalanceTest, MakeSavePlan_DeepSeekV3_HeaviestWriterIsBounded) {
  const auto layouts = DeepSeekV3(1);
  const Loads alone = LoadsOf(layouts, MovePolicy::kNever);
  const Loads moved = LoadsOf(layouts, MovePolicy::kAuto);
  EXPECT_EQ(alone.total, moved.total);
  // There are 671e9 parameters of 2 + 12 bytes each, without the module for multi-token prediction.
  EXPECT_NEAR(static_cast<double>(moved.total), 14 * 671e9, 14 * 2e9);
  ExpectBalanced(moved);
}

}  // namespace
}  // namespace cairn
