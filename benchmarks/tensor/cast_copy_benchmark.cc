// Measures how fast elements are permuted and cast while they are copied, against memcpy in turns in the same run.
//
//   usage: cast_copy_benchmark [ROUNDS [THREADS [ROWS COLUMNS]]]
//
// A ratio of 1 means: as many bytes read and written in a second of CPU time as memcpy does with a block of the mean
// size of both sides, by as many threads. Memory is touched before; as a rule both sides are larger than the caches.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "common/tensor/tiled_copy.h"

namespace cairn {
namespace {

double CpuSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// CPU seconds of work(0) to work(threads - 1), each in a thread of its own, per thread.
double Measure(int64_t threads, const std::function<void(int64_t)>& work) {
  std::vector<double> seconds(static_cast<size_t>(threads));
  const auto run = [&](int64_t i) {
    const double begin = CpuSeconds();
    work(i);
    seconds[static_cast<size_t>(i)] = CpuSeconds() - begin;
  };
  std::vector<std::thread> others;
  for (int64_t i = 1; i < threads; ++i) others.emplace_back(run, i);
  run(0);
  for (std::thread& other : others) other.join();
  double sum = 0;
  for (double one : seconds) sum += one;
  return sum / static_cast<double>(threads);
}

struct Case {
  const char* name;
  DType from;
  DType to;
  bool transposed;
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

int Main(int argc, char** argv) {
  const auto argument = [&](int i, int64_t otherwise) {
    return argc > i ? std::max<int64_t>(1, std::atoll(argv[i])) : otherwise;
  };
  const int64_t rounds = argument(1, 9), threads = argument(2, 1), rows = argument(3, 4096),
                columns = argument(4, 4096);
  using enum DType;
  const std::vector<Case> cases = {
      {"float32 to bfloat16", kFloat32, kBfloat16, false},
      {"bfloat16 to float32", kBfloat16, kFloat32, false},
      {"float32 to float16", kFloat32, kFloat16, false},
      {"float16 to float32", kFloat16, kFloat32, false},
      {"float64 to bfloat16", kFloat64, kBfloat16, false},
      {"float64, transposed", kFloat64, kFloat64, true},
      {"float32, transposed", kFloat32, kFloat32, true},
      {"bfloat16, transposed", kBfloat16, kBfloat16, true},
      {"int8, transposed", kInt8, kInt8, true},
      {"float32 to bfloat16, transposed", kFloat32, kBfloat16, true},
      {"bfloat16 to float32, transposed", kBfloat16, kFloat32, true},
      {"float16 to bfloat16, transposed", kFloat16, kBfloat16, true},
      {"float64 to float32, transposed", kFloat64, kFloat32, true},
  };
  const auto most = static_cast<size_t>(rows * columns * 8);
  std::vector<std::byte> source(most, std::byte{0x3c}), target(most, std::byte{1});
  std::printf("%lld x %lld, threads: %lld\n", static_cast<long long>(rows), static_cast<long long>(columns),
              static_cast<long long>(threads));
  std::printf("%-34s %10s %10s %8s\n", "", "GB/s", "memcpy", "ratio");
  for (const Case& c : cases) {
    const int64_t a = BytesOf(c.from), b = BytesOf(c.to);
    std::vector<TiledCopy> copies;
    for (int64_t i = 0; i < threads; ++i) {  // each takes some columns of the source
      const int64_t begin = columns * i / threads, end = columns * (i + 1) / threads;
      TiledCopy& copy = copies.emplace_back();
      const int64_t target_step = c.transposed ? rows * b : b;
      copy.source = source.data() + begin * a;
      copy.target = target.data() + begin * target_step;
      copy.element_bytes = a;
      copy.dimensions = {{rows, columns * a, c.transposed ? b : columns * b}, {end - begin, a, target_step}};
      if (c.from != c.to) copy.casts = {c.from, c.to};
      copy.Simplify();
    }
    const int64_t bytes = rows * columns * (a + b);
    std::vector<double> ours, theirs, ratios;
    for (int64_t round = 0; round <= rounds; ++round) {
      const double mine = Measure(threads, [&](int64_t i) { Execute(copies[static_cast<size_t>(i)]); });
      const double peer = Measure(threads, [&](int64_t i) {
        const int64_t begin = bytes / 2 * i / threads, end = bytes / 2 * (i + 1) / threads;
        std::memcpy(target.data() + begin, source.data() + begin, static_cast<size_t>(end - begin));
      });
      if (round == 0) continue;  // to warm up
      ours.push_back(static_cast<double>(bytes) / mine / 1e9);
      theirs.push_back(static_cast<double>(bytes) / peer / 1e9);
      ratios.push_back(peer / mine);
    }
    std::printf("%-34s %10.2f %10.2f %8.2f\n", c.name, Median(ours), Median(theirs), Median(ratios));
  }
  return 0;
}

}  // namespace
}  // namespace cairn

int main(int argc, char** argv) { return cairn::Main(argc, argv); }
