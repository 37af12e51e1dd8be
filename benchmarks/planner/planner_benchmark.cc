// Measures how long plans take, on one core, from serialized layouts in to serialized parts and manifest out.
//
//   planner_benchmark save megatron|fsdp RANKS
//   planner_benchmark load megatron|fsdp SOURCE_RANKS TARGET_RANKS
//   planner_benchmark tiling CHUNKS
//   planner_benchmark growth megatron|fsdp RANKS...     saves in a process each; fits CPU seconds to items^exponent
//   planner_benchmark balance llama405b|deepseekv3 DATA_PARALLEL
//   planner_benchmark changed megatron|fsdp RANKS       one rank's layout changes: what is planned and sent again
//
// Prints CPU seconds per stage, bytes, and the largest resident size of each stage above that of its inputs. Megatron:
// TP8 x PP16 x DP, 300 items per rank before replicas are merged: 150 parameters of the stage, cut by tensor
// parallelism and replicated over the data-parallel ranks, and 150 flat pieces of a distributed optimizer (50 buckets,
// three states). FSDP: 300 tensors cut over all ranks.
#include <malloc.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "benchmarks/planner/known_models.h"
#include "cairn/v1/layout.pb.h"
#include "common/base/digest.h"
#include "common/format/outcome.h"
#include "common/rpc/plan_part.h"
#include "common/tensor/tiling.h"
#include "planner/layout/layout_description.h"
#include "planner/load/load_plan.h"
#include "planner/save/save_plan.h"

namespace cairn {
namespace {

double CpuSeconds() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// Returns the memory of this process in GiB, as /proc tells it: "VmRSS" is that of now, "VmHWM" the largest since
// ResetPeak.
double ResidentGiB(const char* what) {
  std::FILE* file = std::fopen("/proc/self/status", "r");
  char line[256];
  double kib = 0;
  while (file != nullptr && std::fgets(line, sizeof(line), file) != nullptr) {
    if (std::strncmp(line, what, std::strlen(what)) == 0) kib = std::atof(line + std::strlen(what) + 1);
  }
  if (file != nullptr) std::fclose(file);
  return kib / (1 << 20);
}

void ResetPeak() {
  malloc_trim(0);
  if (std::FILE* file = std::fopen("/proc/self/clear_refs", "w"); file != nullptr) {
    std::fputs("5", file);
    std::fclose(file);
  }
}

struct World {
  std::vector<std::string> layouts;
  std::vector<std::string> digests;
  std::vector<RankInput> inputs;
};

World Finish(std::vector<std::string> layouts) {
  World world;
  world.layouts = std::move(layouts);
  for (const std::string& layout : world.layouts) world.digests.push_back(Digest(layout));
  for (size_t r = 0; r < world.layouts.size(); ++r) {
    world.inputs.push_back({static_cast<int>(r), absl::StrCat("node", r / 8), world.layouts[r], world.digests[r]});
  }
  return world;
}

World Fsdp(int64_t ranks) {
  std::vector<std::string> layouts;
  for (int64_t r = 0; r < ranks; ++r) {
    LayoutDescription layout;
    for (int i = 0; i < 300; ++i) {
      const int64_t rows = 32768 + 128 * i, columns = 4096;
      const int64_t step = (rows + ranks - 1) / ranks;
      const int64_t begin = std::min(rows, r * step), end = std::min(rows, begin + step);
      layout.tensors.push_back({absl::StrCat("model.layers.", i / 10, ".module.", i % 10, ".weight"),
                                DType::kFloat32,
                                {rows, columns},
                                {{{{begin, 0}, {end - begin, columns}}, std::nullopt}}});
    }
    layout.objects.push_back({"scheduler", 4096, false});
    Canonicalize(layout);
    layouts.push_back(SerializeLayout(layout));
  }
  return Finish(std::move(layouts));
}

// `per_rank_objects`: the random state of each rank.
World Megatron(int64_t ranks, bool per_rank_objects) {
  constexpr int64_t kTp = 8, kPp = 16;
  const int64_t dp = ranks / (kTp * kPp);
  std::vector<std::string> layouts;
  for (int64_t r = 0; r < dp * kTp * kPp; ++r) {
    const int64_t t = r % kTp, d = r / kTp % dp, p = r / (kTp * dp);
    LayoutDescription layout;
    for (int64_t i = 0; i < 150; ++i) {
      const int64_t rows = 8192, columns = 4096 + 64 * i;
      const std::string name = absl::StrCat("decoder.layers.", p * 15 + i / 10, ".block.", i % 10, ".weight");
      const Box box =
          i % 2 ? Box{{rows / kTp * t, 0}, {rows / kTp, columns}} : Box{{0, columns / kTp * t}, {rows, columns / kTp}};
      layout.tensors.push_back({name, DType::kBfloat16, {rows, columns}, {{box, std::nullopt}}});
      if (i >= 50) continue;
      const int64_t size = box.size(), step = (size + dp - 1) / dp;
      const FlatRange range{std::min(size, d * step), std::min(size, (d + 1) * step)};
      for (const char* state : {"exp_avg", "exp_avg_sq", "fp32_param"}) {
        layout.tensors.push_back(
            {absl::StrCat("optimizer.", state, ".", name), DType::kFloat32, {rows, columns}, {{box, range}}});
      }
    }
    layout.objects.push_back({"scheduler", 4096, false});
    if (per_rank_objects) layout.objects.push_back({"rng", 8192, true});
    Canonicalize(layout);
    layouts.push_back(SerializeLayout(layout));
  }
  return Finish(std::move(layouts));
}

World Make(const std::string& style, int64_t ranks, bool per_rank_objects) {
  return style == "fsdp" ? Fsdp(ranks) : Megatron(ranks, per_rank_objects);
}

std::vector<RankResult> Results(const SavePlan& plan) {
  std::vector<RankResult> results;
  uint32_t crc = 12345;
  for (const PlannedFileView& file : plan.Files()) {
    if (results.empty() || results.back().rank != file.rank) {
      results.emplace_back().rank = file.rank;
    }
    v1::FileResult& out = *results.back().result.add_files();
    out.set_file_bytes(file.header_bytes + file.data_bytes);
    for (const PlannedItem& item : file.items) {
      out.add_item_checksums(crc = crc * 1664525 + 1013904223);
      if (item.item.object) out.add_object_sizes(100);
    }
  }
  return results;
}

template <typename T>
T OrDie(absl::StatusOr<T> value) {
  if (!value.ok()) {
    std::fprintf(stderr, "%s\n", value.status().ToString().c_str());
    std::exit(1);
  }
  return *std::move(value);
}

Manifest Save(const World& world, bool tell) {
  SaveOptions options;
  ResetPeak();
  const double inputs = ResidentGiB("VmRSS:");
  double start = CpuSeconds();
  const SavePlan plan = OrDie(MakeSavePlan(world.inputs, options));
  const double planned = CpuSeconds() - start;
  const double planning_peak = ResidentGiB("VmHWM:") - inputs, plan_resident = ResidentGiB("VmRSS:") - inputs;
  start = CpuSeconds();
  size_t part_bytes = 0;
  for (int rank : plan.ranks()) part_bytes += plan.PartFor(rank).size();
  const double parts = CpuSeconds() - start;
  const std::vector<RankResult> results = Results(plan);  // of the agents: not the planner's time
  ResetPeak();
  const double before_manifest = ResidentGiB("VmRSS:");
  start = CpuSeconds();
  CommitInfo commit;
  commit.job = "benchmark";
  commit.world_size = static_cast<uint32_t>(plan.ranks().size());
  Manifest manifest = OrDie(plan.MakeManifest(results, commit));
  const size_t shards = manifest.shards.size();
  const std::string encoded = EncodeOutcome(manifest);
  const double committed = CpuSeconds() - start;
  if (tell) {
    std::printf(
        "save: plan %.2f s, parts %.2f s (%zu bytes), manifest %.2f s; together %.2f s; %zu distinct shards, "
        "%.2f manifest bytes each\nresident: serialized layouts %.2f GiB; above them the plan %.2f GiB, %.2f while it "
        "is "
        "made, and %.2f more while the manifest is made\n",
        planned, parts, part_bytes, committed, planned + parts + committed, shards,
        static_cast<double>(encoded.size()) / static_cast<double>(shards), inputs, plan_resident, planning_peak,
        ResidentGiB("VmHWM:") - before_manifest);
  }
  return manifest;
}

void Load(const std::string& style, int64_t from, int64_t to) {
  const Manifest manifest = Save(Make(style, from, false), false);
  const World target = Make(style, to, false);
  ResetPeak();
  const double inputs = ResidentGiB("VmRSS:");
  const double start = CpuSeconds();
  const LoadPlan plan = OrDie(MakeLoadPlan(manifest, target.inputs, LoadOptions()));
  size_t total = 0, largest = 0;
  for (int rank : plan.ranks()) {
    total += plan.PartFor(rank).size();
    largest = std::max(largest, plan.PartFor(rank).size());
  }
  std::printf("load: %.2f s; parts %zu bytes in all, %zu at most; %.2f GiB above the inputs\n", CpuSeconds() - start,
              total, largest, ResidentGiB("VmHWM:") - inputs);
}

void Tiling(int64_t chunks) {
  // A three-dimensional grid whose planes are cut differently: no two layers share their cuts.
  const int64_t layers = 100, per_layer = chunks / layers, columns = per_layer / 100;
  const Shape shape = {layers, 100 * 64, columns * 64};
  std::vector<int64_t> pool;
  for (int64_t z = 0; z < layers; ++z) {
    for (int64_t y = 0; y < 100; ++y) {
      for (int64_t x = 0; x < columns; ++x) {
        const auto cut = [&](int64_t i, int64_t n) { return i == 0 ? 0 : i == n ? n * 64 : i * 64 + z % 32; };
        const int64_t y0 = cut(y, 100), y1 = cut(y + 1, 100), x0 = cut(x, columns), x1 = cut(x + 1, columns);
        pool.insert(pool.end(), {z, y0, x0, 1, y1 - y0, x1 - x0});
      }
    }
  }
  std::vector<PackedBox> boxes;
  for (size_t i = 0; i < pool.size(); i += 6) boxes.push_back(pool.data() + i);
  double start = CpuSeconds();
  const bool exact = TilesExactly(shape, boxes);
  std::printf("tiling: %zu boxes, %s in %.3f s", boxes.size(), exact ? "exact" : "NOT exact", CpuSeconds() - start);
  pool[3 + 6 * 777] = 1;
  pool[4 + 6 * 777] -= 1;
  start = CpuSeconds();
  const auto faults = FindTilingFaults(shape, boxes, 16);
  std::printf("; a planted gap found in %.3f s (%zu faults)\n", CpuSeconds() - start, faults.size());
}

// Least squares of log(seconds) over log(ranks): items are in proportion to ranks.
void Growth(const std::string& self, const std::string& style, const std::vector<std::string>& sizes) {
  std::vector<double> x, y;
  for (const std::string& ranks : sizes) {
    std::FILE* run = popen(absl::StrCat(self, " save ", style, " ", ranks).c_str(), "r");
    char line[512];
    double seconds = 0;
    while (run != nullptr && std::fgets(line, sizeof(line), run) != nullptr) {
      if (const char* at = std::strstr(line, "together "); at != nullptr) seconds = std::atof(at + 9);
    }
    if (run == nullptr || pclose(run) != 0 || seconds <= 0) {
      std::fprintf(stderr, "%s ranks could not be planned\n", ranks.c_str());
      std::exit(1);
    }
    std::printf("%s ranks: %.2f s\n", ranks.c_str(), seconds);
    std::fflush(stdout);
    x.push_back(std::log(std::atof(ranks.c_str())));
    y.push_back(std::log(seconds));
  }
  double sx = 0, sy = 0, sxx = 0, sxy = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    sx += x[i];
    sy += y[i];
    sxx += x[i] * x[i];
    sxy += x[i] * y[i];
  }
  const auto n = static_cast<double>(x.size());
  std::printf("cost grows as items^%.3f\n", (n * sxy - sx * sy) / (n * sxx - sx * sx));
}

void Balance(const std::string& model, int64_t data_parallel) {
  std::vector<std::string> layouts;
  for (const LayoutDescription& layout : model == "deepseekv3" ? DeepSeekV3(data_parallel) : Llama405B(data_parallel)) {
    layouts.push_back(SerializeLayout(layout));
  }
  const World world = Finish(std::move(layouts));
  for (const MovePolicy moves : {MovePolicy::kNever, MovePolicy::kAuto}) {
    SaveOptions options;
    options.moves = moves;
    const double start = CpuSeconds();
    const SavePlan plan = OrDie(MakeSavePlan(world.inputs, options));
    const double seconds = CpuSeconds() - start;
    uint64_t max = 0, total = 0, largest = 0, moved = 0;
    for (uint64_t bytes : plan.rank_bytes()) {
      max = std::max(max, bytes);
      total += bytes;
    }
    for (const PlannedFileView& file : plan.Files()) {
      for (const PlannedItem& item : file.items) largest = std::max(largest, item.item.bytes());
    }
    for (const PlannedMove& move : plan.Moves()) moved += move.item.bytes();
    const double mean = static_cast<double>(total) / static_cast<double>(plan.ranks().size());
    std::printf(
        "%s, %zu ranks, %.2f TB, moves %s: heaviest %.4f of the mean (largest shard %.4f), %.2f %% of the bytes "
        "move, %.2f s\n",
        model.c_str(), plan.ranks().size(), static_cast<double>(total) / 1e12,
        moves == MovePolicy::kAuto ? "auto" : "never", static_cast<double>(max) / mean,
        static_cast<double>(largest) / mean, 100.0 * static_cast<double>(moved) / static_cast<double>(total), seconds);
  }
}

void Changed(const std::string& style, int64_t ranks) {
  World world = Make(style, ranks, true);
  SaveOptions options;
  double start = CpuSeconds();
  const SavePlan before = OrDie(MakeSavePlan(world.inputs, options));
  const double first = CpuSeconds() - start;
  // One rank gets an object of its own.
  const size_t rank = static_cast<size_t>(ranks) / 2;
  v1::Layout layout;
  layout.ParseFromString(world.layouts[rank]);
  v1::ObjectDeclaration& object = *layout.add_objects();
  object.set_name("zz.new");
  object.set_slot_bytes(4096);
  object.set_per_rank(true);
  const std::string bytes = layout.SerializeAsString(), digest = Digest(bytes);
  world.inputs[rank].layout = bytes;
  world.inputs[rank].layout_digest = digest;
  start = CpuSeconds();
  const SavePlan after = OrDie(MakeSavePlan(world.inputs, options, &before));
  const double again = CpuSeconds() - start;
  size_t changed = 0, changed_bytes = 0, all_bytes = 0;
  for (int r : after.ranks()) {
    const size_t size = after.PartFor(r).size();
    all_bytes += size;
    if (BodyDigestOf(before.PartFor(r)) == BodyDigestOf(after.PartFor(r))) continue;
    ++changed;
    changed_bytes += size;
  }
  std::printf(
      "changed: first plan %.2f s, again %.3f s, %zu ranks reused; %zu of %zu ranks have another part, %zu of %zu "
      "bytes; uploaded: 1 layout of %zu bytes\n",
      first, again, after.ReusedRanks(), changed, after.ranks().size(), changed_bytes, all_bytes, bytes.size());
}

int Main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "save" && argc == 4) {
    Save(Make(argv[2], std::atoll(argv[3]), true), true);
  } else if (what == "load" && argc == 5) {
    Load(argv[2], std::atoll(argv[3]), std::atoll(argv[4]));
  } else if (what == "tiling" && argc == 3) {
    Tiling(std::atoll(argv[2]));
  } else if (what == "growth" && argc > 4) {
    Growth(argv[0], argv[2], {argv + 3, argv + argc});
  } else if (what == "balance" && argc == 4) {
    Balance(argv[2], std::atoll(argv[3]));
  } else if (what == "changed" && argc == 4) {
    Changed(argv[2], std::atoll(argv[3]));
  } else {
    std::fprintf(stderr,
                 "planner_benchmark save megatron|fsdp RANKS\nplanner_benchmark load megatron|fsdp SOURCE TARGET\n"
                 "planner_benchmark tiling CHUNKS\nplanner_benchmark growth megatron|fsdp RANKS RANKS...\n"
                 "planner_benchmark balance llama405b|deepseekv3 DATA_PARALLEL\n"
                 "planner_benchmark changed megatron|fsdp RANKS\n");
    return 2;
  }
  return 0;
}

}  // namespace
}  // namespace cairn

int main(int argc, char** argv) { return cairn::Main(argc, argv); }
