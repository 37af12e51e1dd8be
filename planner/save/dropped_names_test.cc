#include "planner/save/dropped_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_replace.h"
#include "common/base/digest.h"
#include "planner/layout/layout_description.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A save by as many ranks, each of which declares the same.
SavePlan PlanOf(int ranks, const std::vector<std::string>& tensors, const std::vector<std::string>& objects) {
  LayoutDescription layout;
  for (const std::string& name : tensors) {
    layout.tensors.push_back({name, DType::kFloat32, {2}, {{{{0}, {2}}, std::nullopt}}});
  }
  for (const std::string& name : objects) layout.objects.push_back({name, 4096, false});
  Canonicalize(layout);
  const std::string bytes = SerializeLayout(layout), digest = Digest(bytes);
  std::vector<RankInput> inputs;
  for (int rank = 0; rank < ranks; ++rank) inputs.push_back({rank, "node", bytes, digest});
  auto plan = MakeSavePlan(inputs, SaveOptions());
  EXPECT_TRUE(plan.ok()) << plan.status();
  return *std::move(plan);
}

Manifest Before(const std::vector<std::string>& tensors, const std::vector<std::string>& objects) {
  Manifest manifest;
  for (const std::string& name : tensors) manifest.tensors.emplace_back().name = name;
  for (const std::string& name : objects) manifest.objects.emplace_back().name = name;
  return manifest;
}

TEST(DroppedNamesTest, Names_TheSaveLacksThem_AreDropped) {
  Manifest before = Before({"a", "b", "t"}, {"n", "o"});
  before.aliases = {{"c", "a"}};
  EXPECT_THAT(DroppedNames(before, PlanOf(1, {"b"}, {"o"})), ElementsAre("a", "c", "n", "t"));
  EXPECT_THAT(DroppedNames(before, PlanOf(1, {"a", "b", "c", "t"}, {"n", "o"})), IsEmpty());
}

TEST(DroppedNamesTest, Value_WasStoredInPartsAndIsOneNow_IsNotDropped) {
  const Manifest before = Before({}, {"progress.done.a.jsonl", "progress.done.b.jsonl", "progress2.x"});
  EXPECT_THAT(DroppedNames(before, PlanOf(1, {"w"}, {"progress"})), ElementsAre("progress2.x"));
}

TEST(DroppedNamesTest, Value_GotTensors_IsNotDropped) {
  const Manifest before = Before({}, {"optimizer"});
  EXPECT_THAT(DroppedNames(before, PlanOf(1, {"optimizer.state.w"}, {})), IsEmpty());
  EXPECT_THAT(DroppedNames(before, PlanOf(1, {"optimizer2.state.w"}, {})), ElementsAre("optimizer"));
}

TEST(DroppedNamesTest, Tensor_ItsDictIsAValueNow_IsDropped) {
  EXPECT_THAT(DroppedNames(Before({"m.w"}, {"m.n"}), PlanOf(1, {"x"}, {"m"})), ElementsAre("m.w"));
}

TEST(DroppedNamesTest, Optimizer_ItsParametersHaveNamesNow_ItsNumbersAreNotDropped) {
  const Manifest before = Before({"o.state.0.exp_avg", "o.state.1.exp_avg", "o.state.0.step", "state.0.exp_avg"}, {});
  EXPECT_THAT(DroppedNames(before, PlanOf(1, {"o.state.a.weight.exp_avg", "o.state.1.step"}, {})),
              ElementsAre("o.state.0.step", "state.0.exp_avg"));
  EXPECT_THAT(DroppedNames(before, PlanOf(1, {"o.state.a.b.step", "state.w.exp_avg", "o.state.a.b.exp_avg"}, {})),
              IsEmpty());
  // The other way round names are lost.
  EXPECT_THAT(DroppedNames(Before({"o.state.w.step"}, {}), PlanOf(1, {"o.state.0.step"}, {})),
              ElementsAre("o.state.w.step"));
}

TEST(DroppedNamesTest, Object_TheClientHasAddedIt_IsNotDropped) {
  const Manifest before = Before({}, {"cairn.dcp", "cairn.description.optimizer", "cairn.other"});
  EXPECT_THAT(DroppedNames(before, PlanOf(1, {"w"}, {})), ElementsAre("cairn.other"));
}

TEST(DroppedNamesTest, Object_OnlyRanksThatAreGoneHadIt_IsNotDropped) {
  Manifest before = Before({}, {"own", "own", "of_one", "of_three"});
  for (int i = 0; i < 4; ++i) before.objects[static_cast<size_t>(i)].rank = i;
  // Rank 1 is still there, and so "own" is missed.
  EXPECT_THAT(DroppedNames(before, PlanOf(2, {"w"}, {})), ElementsAre("own"));
  EXPECT_THAT(DroppedNames(before, PlanOf(3, {"w"}, {})), ElementsAre("of_one", "own"));
}

TEST(DroppedNamesTest, Object_ItsKeyNamesARankAndOtherRanksHaveOne_IsNotDropped) {
  const Manifest before = Before({"t.rank2"}, {"l.dp_rank_12", "l.dp_rank_2.at", "l.frank2", "l.rank2", "rank-2"});
  EXPECT_THAT(DroppedNames(before, PlanOf(1, {"t.rank0"}, {"l.dp_rank_0", "rank-0", "l.frank0"})),
              ElementsAre("l.frank2", "l.rank2", "t.rank2"));
  EXPECT_THAT(DroppedNames(Before({}, {"l.dp_rank_2", "rank", "rank2x"}), PlanOf(1, {}, {"l.dp_rank_", "l.dp_rank_x"})),
              ElementsAre("l.dp_rank_2", "rank", "rank2x"));
}

TEST(DroppedNamesTest, Object_ItsKeyNamesARank_AsInTheTable) {
  std::ifstream table("planner/layout/rank_keys.txt");
  int keys = 0;
  for (std::string line; std::getline(table, line);) {
    if (line.starts_with('#')) continue;
    ++keys;
    const bool names_a_rank = line.starts_with("yes ");
    const std::string key = line.substr(line.find(' ') + 1);
    const auto of_rank = [&](const char* rank) { return "l." + absl::StrReplaceAll(key, {{"{}", rank}}); };
    const std::vector<std::string> dropped =
        DroppedNames(Before({}, {of_rank("12")}), PlanOf(1, {"w"}, {of_rank("0")}));
    EXPECT_EQ(dropped.empty(), names_a_rank) << line;
  }
  EXPECT_GT(keys, 10);
}

}  // namespace
}  // namespace cairn
