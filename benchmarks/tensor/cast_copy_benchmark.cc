// How fast elements are permuted and cast while they are copied, against memcpy in turns in the same run.
//
//   usage: cast_copy_benchmark [ROUNDS]
//
// A ratio of 1 means: as many bytes read and written in a second of CPU time as memcpy does with a block of the mean
// size of both sides. Memory is touched before; both sides are larger than the caches.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "common/tensor/tiled_copy.h"

namespace cairn {
namespace {

constexpr int64_t kRows = 4096, kColumns = 4096;

double CpuSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
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
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 9;
  const std::vector<Case> cases = {
      {"float32, transposed", DType::kFloat32, DType::kFloat32, true},
      {"bfloat16, transposed", DType::kBfloat16, DType::kBfloat16, true},
      {"float32 to bfloat16", DType::kFloat32, DType::kBfloat16, false},
      {"bfloat16 to float32", DType::kBfloat16, DType::kFloat32, false},
      {"float32 to float16", DType::kFloat32, DType::kFloat16, false},
      {"float16 to float32", DType::kFloat16, DType::kFloat32, false},
      {"float32 to bfloat16, transposed", DType::kFloat32, DType::kBfloat16, true},
      {"bfloat16 to float32, transposed", DType::kBfloat16, DType::kFloat32, true},
      {"float16 to bfloat16, transposed", DType::kFloat16, DType::kBfloat16, true},
      {"float64 to float32, transposed", DType::kFloat64, DType::kFloat32, true},
  };
  const size_t most = kRows * kColumns * 8;
  std::vector<std::byte> source(most, std::byte{0x3c}), target(most, std::byte{1});
  std::printf("%-34s %10s %10s %8s\n", "4096 x 4096", "GB/s", "memcpy", "ratio");
  for (const Case& c : cases) {
    const int64_t a = BytesOf(c.from), b = BytesOf(c.to);
    TiledCopy copy;
    copy.source = source.data();
    copy.target = target.data();
    copy.element_bytes = a;
    copy.dimensions = {{kRows, kColumns * a, c.transposed ? b : kColumns * b},
                       {kColumns, a, c.transposed ? kRows * b : b}};
    if (c.from != c.to) copy.casts = {c.from, c.to};
    copy.Simplify();
    const auto bytes = static_cast<size_t>(kRows * kColumns * (a + b));
    std::vector<double> ours, theirs, ratios;
    for (int round = 0; round <= rounds; ++round) {
      double begin = CpuSeconds();
      Execute(copy);
      const double mine = CpuSeconds() - begin;
      begin = CpuSeconds();
      std::memcpy(target.data(), source.data(), bytes / 2);
      const double peer = CpuSeconds() - begin;
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
