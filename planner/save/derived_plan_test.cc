// Checks that a plan which takes over parts of an earlier one is the plan that is made without it.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/base/digest.h"
#include "planner/save/virtual_manifest.h"
#include "planner/testing/model.h"
#include "planner/testing/seeds.h"

namespace cairn::testing {
namespace {

struct Job {
  std::vector<LayoutDescription> layouts;
  std::vector<std::string> nodes;
};

absl::StatusOr<SavePlan> PlanOf(const Job& job, const SaveOptions& options, const SavePlan* before) {
  std::vector<std::string> bytes, digests;
  for (const LayoutDescription& layout : job.layouts) bytes.push_back(SerializeLayout(layout));
  for (const std::string& layout : bytes) digests.push_back(Digest(layout));
  std::vector<RankInput> inputs;
  for (size_t r = 0; r < bytes.size(); ++r) {
    inputs.push_back({static_cast<int>(3 * r), job.nodes[r], bytes[r], digests[r]});
  }
  return MakeSavePlan(inputs, options, before);
}

void ExpectEqual(const SavePlan& plan, const SavePlan& anew) {
  EXPECT_EQ(plan.digest(), anew.digest());
  EXPECT_EQ(plan.ranks(), anew.ranks());
  EXPECT_EQ(plan.rank_bytes(), anew.rank_bytes());
  EXPECT_EQ(plan.names(), anew.names());
  EXPECT_EQ(plan.object_names(), anew.object_names());
  for (const int rank : anew.ranks()) {
    EXPECT_EQ(plan.PartFor(rank), anew.PartFor(rank)) << "rank " << rank;
    EXPECT_EQ(plan.SoleBytes(rank), anew.SoleBytes(rank)) << "rank " << rank;
  }
  const std::vector<PlannedMove> moves = plan.Moves(), moves_anew = anew.Moves();
  ASSERT_EQ(moves.size(), moves_anew.size());
  for (size_t i = 0; i < moves.size(); ++i) {
    EXPECT_EQ(moves[i].from, moves_anew[i].from);
    EXPECT_EQ(moves[i].to, moves_anew[i].to);
    EXPECT_EQ(moves[i].item.stored_name(), moves_anew[i].item.stored_name());
  }
  // It has every file, every item and its place, the layouts and nodes of all ranks, and the aliases.
  EXPECT_TRUE(VirtualManifest(plan) == VirtualManifest(anew));
}

enum class Change { kSlot, kNewObject, kNoObject, kSharedObject, kAlias, kNode, kJoin, kReplica, kFault, kCount };

// Returns whether the tensors and shards of the job stay as they are.
bool Apply(Change change, Random& random, Job& job) {
  const auto rank = static_cast<size_t>(Below(random, static_cast<int64_t>(job.layouts.size())));
  LayoutDescription& layout = job.layouts[rank];
  const auto slot = static_cast<uint64_t>(4096 * (1 + Below(random, 50)));
  switch (change) {
    case Change::kSlot:
      for (ObjectDescription& object : layout.objects) {
        if (object.per_rank) object.slot_bytes = slot;
      }
      break;
    case Change::kNewObject:
      layout.objects.push_back({absl::StrCat("own", Below(random, 1000), ".", rank), slot, Below(random, 2) == 0});
      break;
    case Change::kNoObject:
      if (!layout.objects.empty()) layout.objects.erase(layout.objects.begin());
      break;
    case Change::kSharedObject:
      for (LayoutDescription& each : job.layouts) {
        std::erase_if(each.objects, [](const ObjectDescription& object) { return object.name == "shared"; });
        each.objects.push_back({"shared", slot, false});
      }
      break;
    case Change::kAlias:
      if (!layout.tensors.empty()) {
        layout.aliases.assign(1, {absl::StrCat("alias.", layout.tensors[0].name), layout.tensors[0].name});
      }
      break;
    case Change::kNode:
      job.nodes[rank] = absl::StrCat("node", Below(random, 4));
      break;
    case Change::kJoin: {
      // A rank whose tensors and shards are those of another gets its objects, too, and so shares its layout.
      for (const LayoutDescription& other : job.layouts) {
        const bool same =
            std::equal(other.tensors.begin(), other.tensors.end(), layout.tensors.begin(), layout.tensors.end(),
                       [](const auto& a, const auto& b) { return a.name == b.name && a.shards == b.shards; });
        if (same) layout = other;
      }
      break;
    }
    case Change::kReplica: {
      const LayoutDescription& other = job.layouts[(rank + 1) % job.layouts.size()];
      const auto missing = std::find_if(other.tensors.begin(), other.tensors.end(), [&](const auto& tensor) {
        return std::none_of(layout.tensors.begin(), layout.tensors.end(),
                            [&](const auto& own) { return own.name == tensor.name; });
      });
      if (missing == other.tensors.end()) return true;
      layout.tensors.push_back(*missing);
      Canonicalize(layout);
      return false;
    }
    case Change::kFault:
      layout.objects.push_back({"bad", slot + 1, true});
      break;
    case Change::kCount:
      break;
  }
  Canonicalize(layout);
  for (LayoutDescription& each : job.layouts) Canonicalize(each);
  return true;
}

TEST(DerivedPlanTest, MakeSavePlan_WithPlanBefore_IsThePlanMadeAnew) {
  const uint64_t first = FromEnvironment("CAIRN_DERIVED_SEED", 1);
  const uint64_t seeds = FromEnvironment("CAIRN_DERIVED_SEEDS", 300);
  int derived = 0, anew_though_unchanged = 0, moving = 0;
  for (uint64_t seed = first; seed < first + seeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Random random(seed);
    Job job{MakeLayouts(MakeModel(seed, ~uint64_t{0}), seed), {}};
    for (size_t r = 0; r < job.layouts.size(); ++r) job.nodes.push_back(absl::StrCat("node", r / 2));
    SaveOptions options;
    options.bins_per_rank = static_cast<int>(1 + Below(random, 3));
    options.moves = Below(random, 2) == 0 ? MovePolicy::kAuto : MovePolicy::kNever;
    auto before = PlanOf(job, options, nullptr);
    ASSERT_TRUE(before.ok()) << before.status();
    for (int step = 0; step < 12; ++step) {
      const auto change = static_cast<Change>(Below(random, static_cast<int64_t>(Change::kCount)));
      SCOPED_TRACE(absl::StrCat("step ", step, ", change ", static_cast<int>(change)));
      Job next = job;
      const bool same_shards = Apply(change, random, next);
      const auto plan = PlanOf(next, options, &*before);
      const auto anew = PlanOf(next, options, nullptr);
      ASSERT_EQ(plan.status().code(), anew.status().code()) << plan.status() << "\n" << anew.status();
      if (!anew.ok()) {
        EXPECT_EQ(plan.status().message(), anew.status().message());
        continue;
      }
      ExpectEqual(*plan, *anew);
      EXPECT_EQ(anew->ReusedRanks(), 0u);
      if (same_shards) ++(plan->ReusedRanks() > 0 ? derived : anew_though_unchanged);
      moving += plan->ReusedRanks() > 0 && !plan->Moves().empty() ? 1 : 0;
      job = std::move(next);
      before = plan;
      if (HasFailure()) return;
    }
  }
  std::printf("  %d plans took over ranks, %d of them with moves; %d took over none\n", derived, moving,
              anew_though_unchanged);
  EXPECT_GT(derived, 4 * anew_though_unchanged);
  EXPECT_GT(moving, 0);
}

// Returns who writes each item, without the own objects of ranks.
std::map<std::string, int> WritersOf(const SavePlan& plan) {
  std::map<std::string, int> writers;
  for (const PlannedFileView& file : plan.Files()) {
    for (const PlannedItem& item : file.items) writers[item.item.stored_name()] = file.rank;
  }
  return writers;
}

TEST(DerivedPlanTest, MakeSavePlan_SmallObjectsChange_AllElseKeepsItsWriter) {
  int compared = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Random random(seed);
    Job job{MakeLayouts(MakeModel(seed, ~uint64_t{0}), seed), {}};
    for (size_t r = 0; r < job.layouts.size(); ++r) job.nodes.push_back(absl::StrCat("node", r / 2));
    for (LayoutDescription& layout : job.layouts) {
      for (int i = 0; i < 8; ++i) layout.objects.push_back({absl::StrCat("common", i), 4096, false});
    }
    const auto before = PlanOf(job, SaveOptions(), nullptr);
    if (!before.ok()) continue;
    for (size_t r = 0; r < job.layouts.size(); ++r) {
      for (ObjectDescription& object : job.layouts[r].objects) {
        if (object.per_rank || object.name == "common3") object.slot_bytes = 4096 * (object.per_rank ? r + 3 : 60);
      }
      job.layouts[r].objects.push_back({"new", 8192, false});
    }
    const auto after = PlanOf(job, SaveOptions(), nullptr);
    ASSERT_TRUE(after.ok()) << after.status();
    std::map<std::string, int> writers = WritersOf(*after);
    for (const auto& [item, rank] : WritersOf(*before)) {
      EXPECT_EQ(writers.at(item), rank) << item;
      ++compared;
    }
  }
  EXPECT_GT(compared, 500);
}

// Two ranks share a layout; then one of them leaves it, and comes back.
TEST(DerivedPlanTest, MakeSavePlan_RankLeavesSharedLayout_OtherRanksAreTakenOver) {
  LayoutDescription replica;
  replica.tensors = {{"w", DType::kFloat32, {64, 8}, {{WholeBox(Shape{64, 8}), std::nullopt}}},
                     {"v", DType::kFloat32, {16, 8}, {{WholeBox(Shape{16, 8}), std::nullopt}}}};
  replica.objects = {{"rng", 4096, true}, {"scheduler", 4096, false}};
  Canonicalize(replica);
  LayoutDescription other;
  other.tensors = {{"u", DType::kFloat32, {32}, {{WholeBox(Shape{32}), std::nullopt}}}};
  Job job{{replica, replica, other, other, other}, {"a", "a", "b", "b", "b"}};
  const auto together = PlanOf(job, SaveOptions(), nullptr);
  ASSERT_TRUE(together.ok()) << together.status();
  job.layouts[0].objects[0].slot_bytes = 8192;
  const auto apart = PlanOf(job, SaveOptions(), &*together);
  ASSERT_TRUE(apart.ok()) << apart.status();
  EXPECT_GE(apart->ReusedRanks(), 3u);
  ExpectEqual(*apart, *PlanOf(job, SaveOptions(), nullptr));
  job.layouts[0] = replica;
  const auto again = PlanOf(job, SaveOptions(), &*apart);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_GE(again->ReusedRanks(), 3u);
  ExpectEqual(*again, *together);
}

TEST(DerivedPlanTest, MakeSavePlan_OtherOptions_NothingIsTakenOver) {
  LayoutDescription layout;
  layout.tensors = {{"w", DType::kFloat32, {64}, {{WholeBox(Shape{64}), std::nullopt}}}};
  const Job job{{layout, layout}, {"a", "b"}};
  const auto plan = PlanOf(job, SaveOptions(), nullptr);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(PlanOf(job, SaveOptions(), &*plan)->ReusedRanks(), 2u);
  SaveOptions others;
  others.bins_per_rank = 1;
  EXPECT_EQ(PlanOf(job, others, &*plan)->ReusedRanks(), 0u);
}

}  // namespace
}  // namespace cairn::testing
