// Measures how close the bin writer comes to the disk: WriteBins against plain O_DIRECT writes of the same memory, in
// turns. Prints one line per round and the ratio of the medians.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "agent/staging/shared_memory.h"
#include "agent/testing/layouts.h"
#include "agent/writer/bin_writer.h"
#include "store/posix/posix_storage.h"
#include "store/write/attempt_owner.h"

namespace {

double CpuSeconds() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

struct Measured {
  double seconds = 0;
  double cpu = 0;
};

template <typename Work>
Measured Measure(Work work) {
  const double cpu = CpuSeconds();
  const auto begin = std::chrono::steady_clock::now();
  work();
  return {std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), CpuSeconds() - cpu};
}

[[noreturn]] void Die(const std::string& what) {
  std::fprintf(stderr, "%s: %s\n", what.c_str(), std::strerror(errno));
  std::exit(1);
}

// The peer: allocate, write from as many threads in pieces as large, fsync.
void PlainWrite(const std::string& path, const char* memory, uint64_t bytes, int threads, uint64_t piece) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_DIRECT, 0644);
  if (fd < 0) Die("open " + path);
  if (fallocate(fd, 0, 0, static_cast<off_t>(bytes)) != 0) Die("fallocate");
  std::atomic<uint64_t> next = 0;
  const auto work = [&] {
    for (uint64_t at = next.fetch_add(piece); at < bytes; at = next.fetch_add(piece)) {
      const uint64_t size = std::min(piece, bytes - at);
      if (pwrite(fd, memory + at, size, static_cast<off_t>(at)) != static_cast<ssize_t>(size)) Die("pwrite");
    }
  };
  std::vector<std::thread> others;
  for (int i = 1; i < threads; ++i) others.emplace_back(work);
  work();
  for (std::thread& thread : others) thread.join();
  if (fsync(fd) != 0) Die("fsync");
  close(fd);
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  using namespace cairn;
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s DIRECTORY [MIB=512] [ROUNDS=5] [THREADS=2]\n", argv[0]);
    return 2;
  }
  const std::string root = argv[1];
  const int64_t mib = argc > 2 ? std::atoll(argv[2]) : 512;
  const int rounds = argc > 3 ? std::atoi(argv[3]) : 5;
  const int threads = argc > 4 ? std::atoi(argv[4]) : 2;
  std::vector<StoredItem> shards;
  std::vector<uint32_t> items;
  constexpr int kTensors = 50;
  for (int i = 0; i < kTensors; ++i) {
    shards.push_back(
        testing::Whole(absl::StrCat("layers.", 100 + i, ".weight"), DType::kFloat32, {mib * (1 << 20) / kTensors / 4}));
    items.push_back(static_cast<uint32_t>(i));
  }
  const RankLayoutPtr layout = testing::MakeLayout(shards, {});
  const SaveImagePtr image = *MakeSaveImage(layout, testing::MakeWritePlan(*layout, 0, {items}, "p"));
  const auto slab = *SharedMemory::Create("benchmark", image->slab_bytes);
  if (!slab->Populate(threads).ok()) Die("populate");
  for (uint64_t i = 0; i < slab->bytes(); i += 8) std::memcpy(slab->data() + i, &i, 8);
  auto storage = PosixStorage::Open(root, true);
  if (!storage.ok()) Die(std::string(storage.status().message()));
  const BinWriterOptions options = {.io_threads = threads};
  std::vector<double> ours, plain;
  for (int round = 0; round < rounds; ++round) {
    std::string path;
    if (!MakeAttemptDirectory(**storage, "benchmark/bins", 1, "").ok()) Die("make the directory");
    const Measured writer = Measure([&] {
      std::atomic<bool> stop = false;
      std::atomic<uint64_t> done = 0;
      const BinWriteJob job = {"benchmark/bins", 1, image, image, {}, slab->data(), nullptr};
      const auto outcome = WriteBins(**storage, job, options, stop, done);
      if (!outcome.ok()) Die(outcome.status().ToString());
      path = outcome->path;
    });
    std::filesystem::remove_all(root + "/benchmark");
    const Measured peer =
        Measure([&] { PlainWrite(root + "/plain", slab->data(), image->slab_bytes, threads, options.chunk_bytes); });
    std::filesystem::remove(root + "/plain");
    ours.push_back(writer.seconds);
    plain.push_back(peer.seconds);
    const double gb = static_cast<double>(image->file_bytes) * 1e-9;
    std::printf("round %d: bins %.3f s (%.2f GB/s, cpu %.3f s, %s)  plain O_DIRECT %.3f s (%.2f GB/s, cpu %.3f s)\n",
                round, writer.seconds, gb / writer.seconds, writer.cpu, path.c_str(), peer.seconds, gb / peer.seconds,
                peer.cpu);
  }
  std::printf("speed of bins / plain O_DIRECT (medians): %.2f\n", Median(plain) / Median(ours));
  return 0;
}
