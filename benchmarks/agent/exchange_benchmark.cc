// Measures how close an exchange over NCCL's stand-in comes to memory, and to the stand-in itself: each rank takes as
// many bytes from all others, in turns with a memcpy of the same bytes by one thread for each rank, and with one group
// call of each rank that moves them all between memory that is registered already. Prints seconds and CPU seconds (of
// this process and the workers) per turn, and the ratios of the medians.
//
// The bytes are taken TIMES times, so that memory which is made and mapped for an exchange is used as often as the two
// buffers of a load with twice as many rounds. With TIMES=1 it is as in a reshard.
//
// With MB PER SECOND no rank receives faster than that, as over a network. With "strided" each rank takes every other
// run of 16 KiB, which its source must pack. Both together show how much of an exchange is hidden behind the network.
//
//   usage: exchange_benchmark BAZEL_BIN [RANKS] [MIB OF EACH RANK] [ROUND MIB] [TIMES] [TURNS] [MB PER SECOND]
//   [strided]
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <iterator>
#include <memory>
#include <sstream>
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

// Returns the CPU seconds of a process.
double CpuOf(pid_t process) {
  std::ifstream stat("/proc/" + std::to_string(process) + "/stat");
  std::string text((std::istreambuf_iterator<char>(stat)), {});
  std::istringstream fields(text.substr(text.rfind(')') + 2));
  std::string skipped;
  for (int field = 3; field < 14; ++field) fields >> skipped;
  double user = 0, system = 0;
  fields >> user >> system;
  return (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

struct Way {
  const char* name;
  std::function<double()> move;
  std::vector<double> seconds = {}, cpu = {};
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 2) {
    std::fprintf(stderr,
                 "usage: exchange_benchmark BAZEL_BIN [RANKS] [MIB OF EACH RANK] [ROUND MIB] [TIMES] [TURNS] "
                 "[MB PER SECOND] [strided]\n");
    return 2;
  }
  const auto number = [&](int at, uint64_t otherwise) {
    return count > at ? std::strtoull(arguments[at], nullptr, 10) : otherwise;
  };
  const auto ranks = static_cast<uint32_t>(std::max<uint64_t>(2, number(2, 4)));
  const bool strided = count > 8 && std::strcmp(arguments[8], "strided") == 0;
  constexpr uint64_t kRun = uint64_t{16} << 10;
  const uint64_t part = (number(3, 256) << 20) / (ranks - 1) / kRun * kRun;
  const uint64_t bytes = part * (ranks - 1);  // that each rank has, gives and takes
  const uint64_t times = std::max<uint64_t>(1, number(5, 8));
  const uint64_t turns = number(6, 5);

  const std::filesystem::path controls =
      std::filesystem::temp_directory_path() / ("exchange-benchmark-" + std::to_string(getpid()));
  std::ofstream(controls) << "shared_device 1\nbytes_per_second " << number(7, 0) * 1'000'000 << "\n";
  setenv("STAND_IN_NCCL", controls.c_str(), 1);
  const std::filesystem::path driver_controls = controls.string() + "-cuda";
  std::ofstream(driver_controls) << "set pinnable_bytes " << (int64_t{1} << 40) << "\n";
  setenv("STAND_IN_CUDA", driver_controls.c_str(), 1);
  const std::filesystem::path built = std::filesystem::absolute(arguments[1]);
  cairn::WorkerProcessOptions worker;
  worker.program = built / "gpu/share/cairn-gpu-worker";
  worker.libcuda = built / "tests/testing/stand_in/cuda/libcairn_stand_in_cuda.so";
  worker.libnccl = built / "tests/testing/stand_in/nccl/libcairn_stand_in_nccl.so";
  auto joined = cairn::testing::JoinRanks(
      ranks, worker, {.source_bytes = strided ? 2 * bytes : bytes, .round_bytes = number(4, 32) << 20});
  cairn::PeerMap peers;
  for (uint32_t rank = 0; rank < ranks; ++rank) peers[rank] = joined[rank]->peer();

  // Each rank cuts its bytes into one part for each other rank.
  std::vector<std::vector<cairn::v1::Copy>> taken(ranks);
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    for (uint64_t time = 0; time < times; ++time) {
      for (uint32_t away = 1; away < ranks; ++away) {
        const uint32_t source = (rank + away) % ranks;
        const uint64_t at = (away - 1) * part;
        taken[rank].push_back(strided
                                  ? cairn::testing::Strided(source, 2 * at, at, static_cast<int64_t>(part / kRun), kRun)
                                  : cairn::testing::Contiguous(source, at, at, part));
      }
    }
  }
  std::vector<std::string> targets(ranks, std::string(bytes, 'x')), expected = targets;
  const auto exchange = [&](bool copy_out, bool prepared) {
    for (uint32_t rank = 0; rank < ranks; ++rank) joined[rank]->Make(taken[rank], peers);
    if (prepared) {
      for (const auto& rank : joined) Need(rank->Prepare());
      for (const auto& rank : joined) rank->AwaitPrepared();
    }
    return AtOnce(ranks, [&](uint32_t rank) {
      if (!prepared) Need(joined[rank]->Prepare());
      joined[rank]->Go();
      Need(joined[rank]->Train(copy_out ? targets[rank].data() : nullptr));
      joined[rank]->StopExchange();
      Need(joined[rank]->broken());
    });
  };
  // Memory for what each rank takes, which its worker has mapped.
  constexpr uint64_t kSource = uint64_t{1} << 40, kTarget = kSource + 1;  // not those that exchanges give
  cairn::BufferPool pool(0, 1);
  std::vector<std::shared_ptr<cairn::SharedMemory>> received;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    auto memory = pool.Make("received", bytes);
    Need(memory.status());
    std::memset((*memory)->data(), 0, bytes);
    cairn::WorkerProcess& process = joined[rank]->worker();
    cairn::worker::Map map;
    map.set_memory(kSource);
    map.set_bytes(bytes);
    Need(process.Map(map, joined[rank]->source_memory().fd(), absl::Minutes(1)));
    map.set_memory(kTarget);
    map.set_writable(true);
    Need(process.Map(map, (*memory)->fd(), absl::Minutes(1)));
    received.push_back(*std::move(memory));
  }
  const auto one_group = [&] {
    return AtOnce(ranks, [&](uint32_t rank) {
      cairn::worker::Step step;
      step.set_number(++joined[rank]->group().steps);
      for (uint64_t transfer = 0; transfer < times * (ranks - 1); ++transfer) {
        const auto away = static_cast<uint32_t>(transfer % (ranks - 1) + 1);
        const uint32_t from = (rank + away) % ranks, to = (rank + ranks - away) % ranks;
        for (const bool send : {true, false}) {
          cairn::worker::Transfer& moved = *step.add_transfers();
          moved.set_peer(send ? to : from);
          moved.set_send(send);
          moved.set_memory(send ? kSource : kTarget);
          moved.set_offset((away - 1) * part);
          moved.set_bytes(part);
        }
      }
      Need(joined[rank]->worker().BeginStep(step));
      Need(joined[rank]->worker().AwaitStep(step.number(), absl::Minutes(5)));
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
  (void)exchange(true, false);
  (void)one_group();
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    // One group moves the same number of bytes, but not those of a strided copy.
    const bool arrived = strided || std::memcmp(received[rank]->data(), expected[rank].data(), bytes) == 0;
    if (targets[rank] == expected[rank] && arrived) continue;
    std::fprintf(stderr, "rank %u has other bytes\n", rank);
    return 1;
  }
  Way ways[] = {{"memcpy", copy},
                {"one group", one_group},
                {"exchange", [&] { return exchange(false, false); }},
                {"exchange, prepared", [&] { return exchange(false, true); }}};
  const auto cpu = [&] {
    double seconds = CpuOf(getpid());
    for (const auto& rank : joined) seconds += CpuOf(rank->worker().pid());
    return seconds;
  };
  const double gigabytes = static_cast<double>(bytes * ranks * times) / 1e9;
  std::printf("%u ranks, %.2f GB in all\n", ranks, gigabytes);
  for (uint64_t turn = 0; turn < turns; ++turn) {
    for (Way& way : ways) {
      const double before = cpu();
      way.seconds.push_back(way.move());
      way.cpu.push_back(cpu() - before);
      std::printf("%s: %.3f s, CPU %.2f s   ", way.name, way.seconds.back(), way.cpu.back());
    }
    std::printf("\n");
  }
  for (const Way& way : ways) {
    std::printf("%-18s %6.2f GB/s, CPU %5.2f s: %.2f of memcpy, %.2f of one group by the clock; %.2f and %.2f by CPU\n",
                way.name, gigabytes / Median(way.seconds), Median(way.cpu),
                Median(ways[0].seconds) / Median(way.seconds), Median(ways[1].seconds) / Median(way.seconds),
                Median(ways[0].cpu) / Median(way.cpu), Median(ways[1].cpu) / Median(way.cpu));
  }
  joined.clear();
  std::filesystem::remove(controls);
  std::filesystem::remove(driver_controls);
  return 0;
}
