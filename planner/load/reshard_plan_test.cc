// Tests in-memory reshards, in which the source's memory takes the place of files. They are executed copy by copy on
// buffers that are laid out as the write plans of the source say, and compared element by element.
#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "absl/strings/str_cat.h"
#include "cairn/v1/plan.pb.h"
#include "common/rpc/plan_part.h"
#include "planner/load/load_plan.h"
#include "planner/testing/executor.h"
#include "planner/testing/model.h"

namespace cairn::testing {
namespace {

uint64_t Padded(uint64_t bytes) { return (bytes + 4095) / 4096 * 4096; }

// Returns a rank's memory as its agent lays it out: the files of its write plan one after the other, each on a page.
Bytes SlabOf(const v1::WritePlan& plan, const RankMemory& rank) {
  Bytes slab;
  for (const v1::PlannedFile& file : plan.files()) {
    const size_t base = slab.size();
    slab.resize(base + Padded(file.header_bytes() + file.data_bytes()), std::byte{0xee});
    size_t at = base + file.header_bytes();
    for (uint32_t item : file.items()) {
      const bool object = item >= rank.shards.size();
      const Bytes bytes = object ? Bytes(rank.layout.objects[item - rank.shards.size()].slot_bytes, std::byte{0x11})
                                 : rank.shards[item];
      std::memcpy(slab.data() + at, bytes.data(), bytes.size());
      at += bytes.size();
    }
  }
  return slab;
}

// Returns what failed; empty if nothing did.
std::string RunReshard(const Model& model, uint64_t seed, const std::function<void(v1::ReadPlan&)>& spoil = nullptr) {
  const std::vector<RankMemory> sources = MakeRanks(ContentsOf(model), MakeLayouts(model, seed * 2 + 1), true);
  const std::vector<RankMemory> wanted = MakeRanks(ContentsOf(model), MakeLayouts(model, seed * 2 + 2), true);
  const auto plan = MakeReshardPlan(InputsOf(sources), InputsOf(wanted), LoadOptions());
  if (!plan.ok()) return HasReason(plan.status(), Reason::kEmptyLayout) ? "" : plan.status().ToString();
  if (!plan->load.missing().empty()) return "missing: " + plan->load.missing()[0];
  std::vector<Bytes> slabs;
  uint64_t lent = 0;
  for (size_t r = 0; r < sources.size(); ++r) {
    v1::WritePlan part;
    if (!part.ParseFromString(plan->source.PartFor(static_cast<int>(r)))) return "no source part";
    if (part.incoming_shards_size() + part.outgoing_shards_size() > 0) return "a reshard moves shards to lend them";
    slabs.push_back(SlabOf(part, sources[r]));
  }
  std::vector<std::vector<uint8_t>> taken(slabs.size());
  for (size_t r = 0; r < slabs.size(); ++r) taken[r].resize(slabs[r].size());
  const size_t world = std::max(sources.size(), wanted.size());
  for (size_t r = 0; r < world; ++r) {
    auto parsed = ParseReadPlan(plan->load.PartFor(static_cast<int>(r)));
    if (!parsed.ok()) return absl::StrCat("no part of rank ", r);
    v1::ReadPlan& part = *parsed;
    if (spoil) spoil(part);
    lent += part.read_bytes();
    if (part.rounds_size() > 1) return "memory has more than one round";
    if (r >= slabs.size() && part.rounds_size() > 0) return "a rank without a source lends";
    if (part.rounds_size() == 1 && part.rounds(0).buffer_bytes() > slabs[r].size()) return "a buffer beyond the memory";
    std::vector<Bytes> memory;
    if (r < wanted.size()) {
      for (const Bytes& shard : wanted[r].shards) memory.emplace_back(shard.size(), std::byte{0x55});
    }
    for (const v1::ReadObject& object : part.objects()) memory.emplace_back(object.bytes());
    for (const v1::Copy& copy : part.copies()) {
      const Bytes& from = slabs[copy.source_rank()];
      if (copy.target() >= memory.size()) return "a copy to nowhere";
      Bytes& to = memory[copy.target()];
      std::vector<int64_t> index(static_cast<size_t>(copy.extents_size()), 0);
      while (true) {
        uint64_t a = copy.source_offset(), b = copy.target_offset();
        for (int d = 0; d < copy.extents_size(); ++d) {
          a += static_cast<uint64_t>(index[static_cast<size_t>(d)] * copy.source_strides(d));
          b += static_cast<uint64_t>(index[static_cast<size_t>(d)] * copy.target_strides(d));
        }
        if (a + copy.element_bytes() > from.size() || b + copy.element_bytes() > to.size()) return "a copy outside";
        std::memcpy(to.data() + b, from.data() + a, copy.element_bytes());
        std::fill_n(taken[copy.source_rank()].begin() + static_cast<std::ptrdiff_t>(a), copy.element_bytes(),
                    uint8_t{1});
        int d = copy.extents_size();
        while (d > 0 && ++index[static_cast<size_t>(d - 1)] == copy.extents(d - 1)) index[static_cast<size_t>(--d)] = 0;
        if (d == 0) break;
      }
    }
    for (size_t i = 0; r < wanted.size() && i < wanted[r].shards.size(); ++i) {
      if (memory[i] != wanted[r].shards[i]) return absl::StrCat("rank ", r, " shard ", i, " differs");
    }
  }
  uint64_t unique = 0;
  for (const auto& marks : taken) unique += static_cast<uint64_t>(std::count(marks.begin(), marks.end(), 1));
  if (unique != plan->load.unique_bytes() || lent != unique) {
    return absl::StrCat("taken ", unique, " bytes, planned ", plan->load.unique_bytes(), ", lent ", lent);
  }
  return "";
}

TEST(ReshardPlanTest, ReshardPlan_RandomPairs_EqualElementByElement) {
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    ASSERT_EQ(RunReshard(MakeModel(seed, ~uint64_t{0}), seed), "") << "seed " << seed;
  }
}

TEST(ReshardPlanTest, ReshardPlan_PlantedFault_IsCaught) {
  int planted = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    bool done = false;
    const std::string error = RunReshard(MakeModel(seed, ~uint64_t{0}), seed, [&](v1::ReadPlan& plan) {
      for (v1::Copy& copy : *plan.mutable_copies()) {
        if (done || copy.target_offset() == 0) continue;
        copy.set_target_offset(copy.target_offset() - 1);
        done = true;
      }
    });
    if (!done) continue;
    ++planted;
    EXPECT_NE(error, "") << "seed " << seed;
  }
  EXPECT_GT(planted, 5);
}

// Returns layouts of one tensor "w" with `rows` rows of 8 bytes, cut at the borders.
std::vector<RankMemory> Rows(int64_t rows, const std::vector<int64_t>& borders) {
  Model model;
  model.tensors.push_back({"w", DType::kFloat64, {rows}, 0, -1, false});
  std::vector<LayoutDescription> layouts;
  for (size_t r = 0; r + 1 < borders.size(); ++r) {
    LayoutDescription& layout = layouts.emplace_back();
    const ShardDescription shard{{{borders[r]}, {borders[r + 1] - borders[r]}}, std::nullopt};
    if (borders[r + 1] > borders[r]) layout.tensors.push_back({"w", DType::kFloat64, {rows}, {shard}});
  }
  return MakeRanks(ContentsOf(model), layouts, true);
}

TEST(ReshardPlanTest, ReshardPlan_ARankWithoutSource_TakesAndOnlyOwnersLend) {
  const auto sources = Rows(100, {0, 60, 100});
  const auto targets = Rows(100, {0, 10, 20, 100});
  const auto plan = MakeReshardPlan(InputsOf(sources), InputsOf(targets), LoadOptions());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->load.ranks(), (std::vector<int>{0, 1, 2}));
  for (const LoadTotals::RankFile& read : plan->load.totals().reads) EXPECT_LT(read.rank, 2);
  EXPECT_EQ(plan->load.unique_bytes(), 800u);
}

TEST(ReshardPlanTest, ReshardPlan_ARankThatOnlyGives_HasAPart) {
  const auto sources = Rows(100, {0, 30, 60, 100});
  const auto targets = Rows(100, {0, 100});
  const auto plan = MakeReshardPlan(InputsOf(sources), InputsOf(targets), LoadOptions());
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (int rank : {0, 1, 2}) {
    const auto part = ParseReadPlan(plan->load.PartFor(rank));
    ASSERT_TRUE(part.ok()) << part.status();
    EXPECT_EQ(part->rounds_size(), 1) << rank;
    EXPECT_EQ(part->copies_size() > 0, rank == 0) << rank;
  }
}

TEST(ReshardPlanTest, ReshardPlan_FaultsOfBothSides_AreTold) {
  const auto whole = Rows(100, {0, 100});
  const auto gap = Rows(100, {0, 60});
  FaultList faults;
  EXPECT_FALSE(MakeReshardPlan(InputsOf(gap), InputsOf(whole), LoadOptions(), faults).ok());
  ASSERT_FALSE(faults.empty());
  EXPECT_EQ(faults.faults()[0].reason, Reason::kShardGap);
  FaultList others;
  EXPECT_FALSE(MakeReshardPlan(InputsOf(whole), InputsOf(Rows(90, {0, 90})), LoadOptions(), others).ok());
  ASSERT_FALSE(others.empty());
  EXPECT_EQ(others.faults()[0].reason, Reason::kShapeMismatch);
}

}  // namespace
}  // namespace cairn::testing
