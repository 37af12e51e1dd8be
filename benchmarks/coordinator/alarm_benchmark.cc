// Measures what alarms cost the coordinator:
//
//   alarm_benchmark RANKS TENSORS [SAVES]
//
// The state is that of fully sharded training: each rank writes a shard of every tensor. Half of the tensors are
// weights, and the others the moments of an optimizer. All shards have changed, so that each is looked at. Prints the
// time to take a manifest's summary, the time to judge it, and the bytes that summaries and histories add to the
// outcome.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/format/outcome.h"
#include "common/format/summary_columns.h"
#include "coordinator/alarms/find_alarms.h"

namespace cairn {
namespace {

double Seconds(std::chrono::steady_clock::time_point since) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - since).count();
}

Manifest MakeManifest(int ranks, int tensors, int64_t step) {
  Manifest manifest;
  manifest.job = "benchmark";
  manifest.step = step;
  manifest.attempt = 1;
  manifest.world_size = static_cast<uint32_t>(ranks);
  manifest.plan_digest = std::string(32, 'p');
  manifest.lineage = {.line = 1, .continues_step = {}, .parent_line = 0, .sequence = static_cast<uint64_t>(step)};
  for (int rank = 0; rank < ranks; ++rank) {
    manifest.files.push_back({absl::StrFormat("rank%05d-bin00", rank), rank, 4096, 0, 1});
  }
  std::vector<std::string> names;
  for (int i = 0; i < tensors; ++i) {
    const std::string weight = absl::StrCat("layers.", i / 2, ".weight");
    names.push_back(i % 2 == 0 ? "model." + weight : "optimizer.state." + weight + ".exp_avg");
  }
  std::sort(names.begin(), names.end());
  std::mt19937_64 random(static_cast<uint64_t>(step));
  uint32_t number = static_cast<uint32_t>(step) * 2654435761u;
  for (int i = 0; i < tensors; ++i) {
    manifest.tensors.push_back({names[static_cast<size_t>(i)],
                                DType::kFloat32,
                                {ranks, 1024},
                                static_cast<uint32_t>(manifest.shards.size()),
                                static_cast<uint32_t>(ranks)});
    for (int rank = 0; rank < ranks; ++rank) {
      manifest.shards.push_back({static_cast<uint32_t>(i), static_cast<uint32_t>(rank), static_cast<uint32_t>(i),
                                 number += 2654435761u, 0, 0, static_cast<uint32_t>(manifest.dims.size()), false});
      manifest.dims.insert(manifest.dims.end(), {rank, 0, 1, 1024});
    }
    TensorSummary summary;
    // Nothing in these repeats, so that they do not compress better than real ones.
    std::uniform_real_distribution<double> any(1, 2);
    summary.statistics = {number % 1000, 0, -any(random), any(random), any(random), any(random), {}};
    for (double& lane : summary.statistics.sketch) lane = any(random);
    summary.fingerprint_parts = random();
    summary = AsRecorded(summary, DType::kFloat32);
    manifest.summaries.push_back(summary);
  }
  if (!manifest.PlaceItems().ok()) std::abort();
  return manifest;
}

int Main(int ranks, int tensors, int saves) {
  StateSummary before;
  std::vector<double> taking, judging;
  size_t alarms = 0;
  Manifest manifest;
  for (int save = 1; save <= saves; ++save) {
    manifest = MakeManifest(ranks, tensors, save);
    auto begin = std::chrono::steady_clock::now();
    StateSummary now = SummaryOf(manifest);
    taking.push_back(Seconds(begin));
    begin = std::chrono::steady_clock::now();
    alarms += FindAlarms(save == 1 ? nullptr : &before, now).size();
    judging.push_back(Seconds(begin));
    for (const StateSummary::Tensor& tensor : now.tensors) manifest.histories.push_back(tensor.history);
    before = std::move(now);
  }
  const size_t with = EncodeOutcome(manifest).size();
  manifest.summaries.clear();
  manifest.histories.clear();
  const size_t without = EncodeOutcome(manifest).size();
  std::sort(taking.begin(), taking.end());
  std::sort(judging.begin(), judging.end());
  std::printf("%d ranks, %d tensors, %d saves: summary %.1f ms, judged in %.1f ms (median; at most %.1f), %zu alarms\n",
              ranks, tensors, saves, 1e3 * taking[taking.size() / 2], 1e3 * judging[judging.size() / 2],
              1e3 * judging.back(), alarms);
  std::printf("manifest: %.1f bytes more for a tensor\n",
              static_cast<double>(with - without) / static_cast<double>(tensors));
  return 0;
}

}  // namespace
}  // namespace cairn

int main(int argc, char** argv) {
  int ranks = 0, tensors = 0, saves = 9;
  if (argc < 3 || !absl::SimpleAtoi(argv[1], &ranks) || !absl::SimpleAtoi(argv[2], &tensors) || ranks < 1 ||
      tensors < 1 || (argc > 3 && !absl::SimpleAtoi(argv[3], &saves))) {
    std::fprintf(stderr, "usage: alarm_benchmark RANKS TENSORS [SAVES]\n");
    return 2;
  }
  return cairn::Main(ranks, tensors, std::max(saves, 2));
}
