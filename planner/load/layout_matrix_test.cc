// Takes random pairs of parallel layouts, saves in one and loads in the other, through the plans' real bytes, and
// compares byte for byte. CAIRN_MATRIX_PAIRS sets how many pairs (default 10000), CAIRN_MATRIX_SEED the first seed. A
// failure prints its seed and the smallest set of tensors that still fails.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "cairn/v1/plan.pb.h"
#include "common/format/outcome.h"
#include "planner/testing/executor.h"
#include "planner/testing/model.h"
#include "planner/testing/seeds.h"

namespace cairn::testing {
namespace {

struct Faults {
  std::function<void(int, std::string&)> in_write_plan;
  std::function<void(int, std::string&)> in_read_plan;
};

// Returns what failed; empty if nothing did.
std::string RunPair(uint64_t seed, uint64_t keep, const Faults& planted = {}) {
  const Model model = MakeModel(seed, keep);
  const std::vector<RankMemory> sources = MakeRanks(ContentsOf(model), MakeLayouts(model, seed * 2 + 1), true);
  const bool same = seed % 16 == 0;
  std::vector<RankMemory> targets = MakeRanks(ContentsOf(model), MakeLayouts(model, seed * 2 + (same ? 1 : 2)), false);
  SaveOptions options;
  options.bins_per_rank = 1 + static_cast<int>(seed % 3);
  options.moves = seed % 2 == 0 ? MovePolicy::kAuto : MovePolicy::kNever;
  options.move_threshold = 1.0 + static_cast<double>(seed % 5) * 0.05;
  const auto plan = MakeSavePlan(InputsOf(sources), options);
  if (!plan.ok()) {
    const bool nothing = model.tensors.empty() && model.objects.empty() && model.per_rank_objects.empty();
    return nothing && HasReason(plan.status(), Reason::kEmptyLayout) ? "" : plan.status().ToString();
  }
  Storage storage;
  std::vector<RankResult> results;
  if (std::string error = ExecuteSave(*plan, sources, storage, results, planted.in_write_plan); !error.empty()) {
    return "save: " + error;
  }
  CommitInfo commit{"demo", 7, 1, "request", static_cast<uint32_t>(sources.size()), absl::UnixEpoch(), "cairn test"};
  const auto manifest = plan->MakeManifest(results, commit);
  if (!manifest.ok()) return manifest.status().ToString();
  const auto outcome = DecodeOutcome(EncodeOutcome(*manifest));
  if (!outcome.ok()) return outcome.status().ToString();
  if (std::get<Manifest>(*outcome) != *manifest) return "the manifest changed on its way to disk and back";
  LoadOptions load_options;
  load_options.round_bytes = uint64_t{2} << 20;
  if (sources.size() == targets.size() && seed / 16 % 4 != 0) {  // all agents, or some, still have what they wrote
    for (int rank = 0; rank < static_cast<int>(targets.size()); ++rank) {
      if (seed / 16 % 4 == 1 || (seed >> (rank % 60)) % 3 == 1) load_options.keepers.push_back(rank);
    }
  }
  const auto load = MakeLoadPlan(std::get<Manifest>(*outcome), InputsOf(targets), load_options);
  if (!load.ok()) return load.status().ToString();
  if (!load->missing().empty()) return "missing: " + load->missing()[0];
  if (!load->unexpected().empty()) return "unexpected: " + load->unexpected()[0];
  if (std::string error =
          ExecuteLoad(*load, *manifest, storage, load_options.round_bytes, targets, planted.in_read_plan);
      !error.empty()) {
    return "load: " + error;
  }
  const std::vector<RankMemory> wanted = [&] {
    std::vector<LayoutDescription> layouts;
    for (const RankMemory& target : targets) layouts.push_back(target.layout);
    return MakeRanks(ContentsOf(model), layouts, true);
  }();
  for (size_t r = 0; r < targets.size(); ++r) {
    for (size_t i = 0; i < targets[r].shards.size(); ++i) {
      if (targets[r].shards[i] != wanted[r].shards[i]) return absl::StrCat("rank ", r, " shard ", i, " differs");
    }
    for (const std::string& object : model.objects) {
      if (targets[r].objects[object] != sources[0].objects.at(object)) return "an object differs";
    }
    for (const std::string& object : model.per_rank_objects) {
      for (size_t s = 0; s < sources.size(); ++s) {
        if (sources.size() == targets.size() && s != r) continue;
        if (targets[r].objects[absl::StrCat(object, "#", s)] != sources[s].objects.at(object)) {
          return "an object that is one per rank differs";
        }
      }
    }
  }
  for (const LoadTotals::RankFile& read : load->totals().reads) {
    const int writer = manifest->files[read.file].rank;
    const auto& keepers = load_options.keepers;
    if (std::binary_search(keepers.begin(), keepers.end(), writer) && read.rank != writer) {
      return "a file is read by another rank than the one that has it in memory";
    }
  }
  if (same) {
    // Each rank reads what it wrote. A shard that was moved before it was written is read by a rank that holds it.
    std::set<int> wrote_for_others;
    for (const MovingRanks& pair : plan->MovePairs()) wrote_for_others.insert(pair.to);
    for (const LoadTotals::RankFile& read : load->totals().reads) {
      const int writer = manifest->files[read.file].rank;
      if (writer != read.rank && !wrote_for_others.contains(writer)) {
        return "an unchanged layout reads another rank's file";
      }
    }
  }
  return "";
}

// The pairs are dealt out to eight tests, which can run at the same time.
constexpr uint64_t kDeals = 8;
class LayoutMatrixTest : public ::testing::TestWithParam<uint64_t> {};

TEST_P(LayoutMatrixTest, Load_RandomPairs_LoadEqualByteForByte) {
  const uint64_t first = FromEnvironment("CAIRN_MATRIX_SEED", 1);
  const uint64_t pairs = FromEnvironment("CAIRN_MATRIX_PAIRS", 10000);
  for (uint64_t seed = first + GetParam(); seed < first + pairs; seed += kDeals) {
    std::string error = RunPair(seed, ~uint64_t{0});
    if (error.empty()) continue;
    uint64_t keep = 0xff;
    for (int bit = 0; bit < 8; ++bit) {
      const uint64_t fewer = keep & ~(uint64_t{1} << bit);
      const std::string again = RunPair(seed, fewer);
      if (again.empty()) continue;
      keep = fewer;
      error = again;
    }
    const Model model = MakeModel(seed, keep);
    std::string tensors;
    for (const auto& tensor : model.tensors) absl::StrAppend(&tensors, " ", tensor.name, ShapeToString(tensor.shape));
    FAIL() << "seed " << seed << ", tensors kept " << keep << ":" << tensors << "\n"
           << error << "\nreplay: CAIRN_MATRIX_SEED=" << seed << " CAIRN_MATRIX_PAIRS=1";
  }
}

INSTANTIATE_TEST_SUITE_P(Deals, LayoutMatrixTest, ::testing::Range<uint64_t>(0, kDeals));

template <typename Message>
std::function<void(int, std::string&)> Spoil(bool& done, const std::function<bool(Message&)>& change) {
  return [&done, change](int, std::string& part) {
    Message message;
    if (done || !message.ParseFromString(part) || !change(message)) return;
    done = true;
    part = message.SerializeAsString();
  };
}

// Each planted fault must be noticed for every seed in which it can be planted.
void ExpectCaught(const std::function<Faults(bool&)>& plant) {
  int planted = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    bool done = false;
    const std::string error = RunPair(seed, ~uint64_t{0}, plant(done));
    if (!done) continue;
    ++planted;
    EXPECT_FALSE(error.empty()) << "seed " << seed;
  }
  EXPECT_GT(planted, 5);
}

TEST(PlantedFaultTest, PlantedFault_OffByOneOffset_IsCaught) {
  ExpectCaught([](bool& done) {
    return Faults{nullptr, Spoil<v1::ReadPlan>(done, [](v1::ReadPlan& plan) {
                    for (v1::Copy& copy : *plan.mutable_copies()) {
                      if (copy.source_offset() == 0) continue;
                      copy.set_source_offset(copy.source_offset() - 1);
                      return true;
                    }
                    return false;
                  })};
  });
}

TEST(PlantedFaultTest, PlantedFault_DroppedCopy_IsCaught) {
  ExpectCaught([](bool& done) {
    return Faults{nullptr, Spoil<v1::ReadPlan>(done, [](v1::ReadPlan& plan) {
                    if (plan.copies_size() == 0) return false;
                    plan.mutable_copies()->DeleteSubrange(plan.copies_size() - 1, 1);
                    return true;
                  })};
  });
}

TEST(PlantedFaultTest, PlantedFault_DoubleRead_IsCaught) {
  ExpectCaught([](bool& done) {
    return Faults{nullptr, Spoil<v1::ReadPlan>(done, [](v1::ReadPlan& plan) {
                    if (plan.rounds_size() == 0) return false;
                    *plan.add_rounds() = plan.rounds(0);
                    plan.set_read_bytes(plan.read_bytes() + plan.rounds(0).reads(0).bytes());
                    return true;
                  })};
  });
}

TEST(PlantedFaultTest, PlantedFault_WrongBin_IsCaught) {
  ExpectCaught([](bool& done) {
    return Faults{Spoil<v1::WritePlan>(done,
                                       [](v1::WritePlan& plan) {
                                         if (plan.files_size() < 2 || plan.files(0).items_size() == 0) return false;
                                         v1::PlannedFile& from = *plan.mutable_files(0);
                                         plan.mutable_files(1)->add_items(from.items(from.items_size() - 1));
                                         from.mutable_items()->RemoveLast();
                                         return true;
                                       }),
                  nullptr};
  });
}

TEST(PlantedFaultTest, PlantedFault_DroppedReplica_IsCaught) {
  // The only writer of a replicated shard leaves the shard out.
  ExpectCaught([](bool& done) {
    return Faults{Spoil<v1::WritePlan>(done,
                                       [](v1::WritePlan& plan) {
                                         if (plan.files_size() == 0 || plan.files(0).items_size() == 0) return false;
                                         plan.mutable_files(0)->mutable_items()->RemoveLast();
                                         return true;
                                       }),
                  nullptr};
  });
}

}  // namespace
}  // namespace cairn::testing
