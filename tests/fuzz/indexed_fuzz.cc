#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "corpus/indexed/indexed_reader.h"

namespace {

std::string Prefix() {
  const char* const directory = std::getenv("TEST_TMPDIR");
  return std::string(directory != nullptr ? directory : "/tmp") + "/indexed_fuzz_" + std::to_string(getpid());
}

}  // namespace

// The first byte says how long .bin is, and the rest is .idx. What Verify accepts must be readable to its end.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string prefix = Prefix();
  if (size == 0) return 0;
  std::ofstream(prefix + ".bin", std::ios::binary) << std::string(data[0], 'x');
  std::ofstream(prefix + ".idx", std::ios::binary)
      .write(reinterpret_cast<const char*>(data) + 1, static_cast<std::streamsize>(size - 1));
  const auto reader = cairn::corpus::IndexedReader::Open(prefix);
  if (reader.ok()) {
    const bool sound = cairn::corpus::VerifyIndexed(**reader, true).ok();
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < (*reader)->header().sequences; ++i) {
      const auto tokens = (*reader)->ReadSequence(i);
      if (sound && !tokens.ok()) std::abort();
      if (tokens.ok()) bytes += tokens->size();
    }
    if (sound && bytes != (*reader)->bin_bytes()) std::abort();
  }
  unlink((prefix + ".bin").c_str());
  unlink((prefix + ".idx").c_str());
  return 0;
}
