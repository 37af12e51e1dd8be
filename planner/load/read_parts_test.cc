#include "planner/load/read_parts.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "common/base/digest.h"
#include "common/rpc/plan_part.h"
#include "planner/layout/layout_description.h"
#include "planner/load/load_plan.h"
#include "planner/save/save_plan.h"
#include "planner/save/virtual_manifest.h"

namespace cairn {
namespace {

// The layout of every rank: an object that is the same for all, and one that each rank has of its own.
const std::string& Layout() {
  static const std::string* const kLayout = [] {
    LayoutDescription layout;
    layout.objects = {{"meta", 4096, false}, {"rng", 4096, true}};
    return new std::string(SerializeLayout(layout));
  }();
  return *kLayout;
}

std::vector<RankInput> Ranks(int count) {
  static const std::string* const kDigest = new std::string(Digest(Layout()));
  std::vector<RankInput> ranks;
  for (int rank = 0; rank < count; ++rank) ranks.push_back({rank, "node", Layout(), *kDigest});
  return ranks;
}

// `object_bytes`: what stands in each slot.
LoadPlan PlanOf(int saved, int loaded, uint64_t object_bytes) {
  const auto save = MakeSavePlan(Ranks(saved), SaveOptions());
  EXPECT_TRUE(save.ok()) << save.status();
  Manifest manifest = VirtualManifest(*save);
  for (ManifestObject& object : manifest.objects) object.bytes = object_bytes;
  auto load = MakeLoadPlan(manifest, Ranks(loaded), LoadOptions());
  EXPECT_TRUE(load.ok()) << load.status();
  return *std::move(load);
}

std::set<int> Readers(const LoadPlan& plan) {
  std::set<int> readers;
  for (const LoadTotals::RankFile& read : plan.totals().reads) readers.insert(read.rank);
  return readers;
}

TEST(ReadPartsTest, Part_WorldHasChanged_GrowsByFewBytesForEachObject) {
  // Rank 699 is none of the readers.
  const size_t before = PlanOf(1000, 700, 3000).PartFor(699).size();
  const size_t after = PlanOf(3000, 700, 3000).PartFor(699).size();
  EXPECT_LE(after - before, 8 * 2000u);
}

TEST(ReadPartsTest, Part_WorldHasChanged_HasEveryObject) {
  const LoadPlan plan = PlanOf(1000, 700, 3000);
  const auto part = ParseReadPlan(plan.PartFor(699));
  ASSERT_TRUE(part.ok()) << part.status();
  std::set<uint32_t> ranks;
  for (const v1::ReadObject& object : part->objects()) {
    EXPECT_EQ(object.bytes(), 3000u);
    if (object.per_rank()) ranks.insert(object.rank());
  }
  EXPECT_EQ(ranks.size(), 1000u);
  EXPECT_EQ(part->objects_size(), 1001);
  EXPECT_EQ(part->copies_size(), 1001);
  EXPECT_TRUE(PlanOf(1000, 700, 3000).PartFor(700).empty());
}

TEST(ReadPartsTest, Readers_SmallObjectsForAll_AreFew) {
  EXPECT_EQ(Readers(PlanOf(1000, 700, 100)).size(), 4u) << "256 objects each";
  EXPECT_EQ(Readers(PlanOf(1000, 700, 4096)).size(), 4u) << "1 MiB each";
  EXPECT_EQ(Readers(PlanOf(8, 4, 4096)).size(), 1u);
}

TEST(ReadPartsTest, Part_SameWorld_HasTheRanksOwnObjectAlone) {
  const LoadPlan plan = PlanOf(40, 40, 3000);
  for (const int rank : plan.ranks()) {
    const auto part = ParseReadPlan(plan.PartFor(rank));
    ASSERT_TRUE(part.ok()) << part.status();
    ASSERT_EQ(part->objects_size(), 2);
    EXPECT_EQ(part->objects(0).rank(), static_cast<uint32_t>(rank));
    EXPECT_EQ(part->objects(1).name(), "meta");
  }
}

}  // namespace
}  // namespace cairn
