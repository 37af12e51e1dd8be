// Runs a fuzz target on its seeds and on damaged copies of them, without libFuzzer.
//
//   usage: PROGRAM DAMAGED_COPIES SEED...
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

void Run(const std::string& input) {
  // The copy has exactly this size, so that AddressSanitizer sees a read behind its end.
  const std::string exact(input.begin(), input.end());
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(exact.data()), exact.size());
}

}  // namespace

int main(int argc, char** argv) {
  std::mt19937 random(1);
  const int copies = argc < 2 ? 0 : std::atoi(argv[1]);
  size_t runs = 0;
  for (int i = 2; i < argc; ++i) {
    std::ifstream file(argv[i], std::ios::binary);
    if (!file) {
      std::fprintf(stderr, "cannot read %s\n", argv[i]);
      return 1;
    }
    const std::string seed((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    Run(seed);
    const size_t stride = std::max<size_t>(1, seed.size() / 500);
    for (size_t size = 0; size < seed.size(); size += stride) Run(seed.substr(0, size));
    for (int damage = 0; damage < copies && !seed.empty(); ++damage) {
      std::string bad = seed;
      for (auto n = random() % 3; n < 3; ++n) bad[random() % bad.size()] = static_cast<char>(random());
      Run(bad);
    }
    ++runs;
  }
  if (runs == 0 || copies == 0) {
    std::fprintf(stderr, "usage: %s DAMAGED_COPIES SEED...\n", argv[0]);
    return 1;
  }
  return 0;
}
