// How close an exchange over NCCL's stand-in comes to memory: each rank takes as many bytes from all others, in turns
// with a memcpy of the same bytes by one thread for each rank. Prints one line per turn and the ratio of the medians.
//
//   usage: exchange_benchmark BAZEL_BIN [RANKS] [MIB OF EACH RANK] [ROUND MIB] [TURNS]
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "agent/transport/testing/exchanging_rank.h"

namespace {

void Need(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

// Lets all ranks do something at once; returns the seconds until the last one is done.
template <typename Work>
double AtOnce(uint32_t ranks, Work work) {
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::future<void>> working;
  working.reserve(ranks);
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    working.push_back(std::async(std::launch::async, [rank, &work] { work(rank); }));
  }
  for (auto& done : working) done.get();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 2) {
    std::fprintf(stderr, "usage: exchange_benchmark BAZEL_BIN [RANKS] [MIB OF EACH RANK] [ROUND MIB] [TURNS]\n");
    return 2;
  }
  const auto number = [&](int at, uint64_t otherwise) {
    return count > at ? std::strtoull(arguments[at], nullptr, 10) : otherwise;
  };
  const auto ranks = static_cast<uint32_t>(std::max<uint64_t>(2, number(2, 4)));
  const uint64_t part = (number(3, 256) << 20) / (ranks - 1);
  const uint64_t bytes = part * (ranks - 1);  // that each rank has, gives and takes
  const uint64_t turns = number(5, 5);

  const std::filesystem::path controls =
      std::filesystem::temp_directory_path() / ("exchange-benchmark-" + std::to_string(getpid()));
  std::ofstream(controls) << "shared_device 1\n";
  setenv("STAND_IN_NCCL", controls.c_str(), 1);
  const std::filesystem::path built = std::filesystem::absolute(arguments[1]);
  cairn::WorkerProcessOptions worker;
  worker.program = built / "agent/gpu/cairn-gpu-worker";
  worker.libcuda = built / "tests/testing/stand_in/cuda/libcairn_stand_in_cuda.so";
  worker.libnccl = built / "tests/testing/stand_in/nccl/libcairn_stand_in_nccl.so";
  auto joined = cairn::testing::JoinRanks(ranks, worker, {.source_bytes = bytes, .round_bytes = number(4, 32) << 20});
  cairn::PeerMap peers;
  for (uint32_t rank = 0; rank < ranks; ++rank) peers[rank] = joined[rank]->peer();

  // Each rank cuts its bytes into one part for each other rank.
  std::vector<std::vector<cairn::v1::Copy>> taken(ranks);
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    for (uint32_t away = 1; away < ranks; ++away) {
      const uint32_t source = (rank + away) % ranks;
      taken[rank].push_back(cairn::testing::Contiguous(source, (away - 1) * part, (away - 1) * part, part));
    }
  }
  std::vector<std::string> targets(ranks, std::string(bytes, 'x')), expected = targets;
  const auto exchange = [&](bool copy_out) {
    for (uint32_t rank = 0; rank < ranks; ++rank) joined[rank]->Make(taken[rank], peers);
    return AtOnce(ranks, [&](uint32_t rank) {
      Need(joined[rank]->Start());
      Need(joined[rank]->Train(copy_out ? targets[rank].data() : nullptr));
      joined[rank]->StopExchange();
      Need(joined[rank]->broken());
    });
  };
  const auto copy = [&] {
    return AtOnce(ranks, [&](uint32_t rank) {
      for (const auto& each : taken[rank]) {
        cairn::testing::Apply(each, joined[each.source_rank()]->source(), expected[rank].data());
      }
    });
  };

  (void)copy();
  (void)exchange(true);
  if (targets != expected) {
    std::fprintf(stderr, "the exchange has brought other bytes\n");
    return 1;
  }
  std::printf("%u ranks, %.0f MiB each\n%8s %12s %9s %10s\n", ranks, static_cast<double>(bytes) / (1 << 20), "memcpy",
              "exchange", "ratio", "GB/s");
  std::vector<double> copied, exchanged;
  const double gigabytes = static_cast<double>(bytes) * ranks / 1e9;
  for (uint64_t turn = 0; turn < turns; ++turn) {
    copied.push_back(copy());
    exchanged.push_back(exchange(false));
    std::printf("%8.3f %12.3f %9.2f %10.2f\n", copied.back(), exchanged.back(), copied.back() / exchanged.back(),
                gigabytes / exchanged.back());
  }
  std::printf("medians: memcpy %.2f GB/s, exchange %.2f GB/s, ratio %.2f\n", gigabytes / Median(copied),
              gigabytes / Median(exchanged), Median(copied) / Median(exchanged));
  joined.clear();
  std::filesystem::remove(controls);
  return 0;
}
