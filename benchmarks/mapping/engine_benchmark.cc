// Measures the CPU seconds of BuildMapping and of all queries of a request, in process and without JSON.
//   bazel run //benchmarks/mapping:engine_benchmark -- request.json [repetitions]
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>
#include <string>

#include "mapping/json.h"
#include "mapping/mapping.h"

namespace {

double CpuSeconds() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace cairn::aoa;  // NOLINT: the whole file is this program
  if (argc < 2) {
    std::fprintf(stderr, "usage: engine_benchmark REQUEST.json [REPETITIONS]\n");
    return 2;
  }
  std::ifstream file(argv[1], std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto request = ParseRequest(std::move(text));
  if (!request.ok()) {
    std::fprintf(stderr, "%s\n", request.status().ToString().c_str());
    return 1;
  }
  const int repetitions = argc > 2 ? std::atoi(argv[2]) : 5;
  for (int i = 0; i < repetitions; ++i) {
    const double begin = CpuSeconds();
    double built = 0, answered = 0;
    size_t count = 0, statements = 0;
    {
      const auto mapped = BuildMapping(request->config, request->source, request->destination_span());
      if (!mapped.ok()) {
        std::fprintf(stderr, "%s\n", mapped.status().ToString().c_str());
        return 1;
      }
      built = CpuSeconds();
      std::vector<Entry> entries;
      for (const ShardDesc& query : request->queries) {
        entries.clear();
        if (!mapped->Resolve(query, entries).ok()) return 1;
        count += entries.size();
      }
      answered = CpuSeconds();
      statements = mapped->program().After(Stage::kFusedQkv).size();
    }
    // Paddle's objects are not freed in its measured time either way; ours is counted.
    const double freed = CpuSeconds();
    std::printf(
        "{\"statements\": %zu, \"entries\": %zu, \"build_s\": %.6f, \"queries_s\": %.6f, \"free_s\": %.6f, "
        "\"total_s\": %.6f}\n",
        statements, count, built - begin, answered - built, freed - answered, freed - begin);
  }
  return 0;
}
