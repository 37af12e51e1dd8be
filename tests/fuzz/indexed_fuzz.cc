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

// The first byte says how long .bin is, and the rest is .idx. Sequences that Verify accepts must lie in .bin one after
// the other, and fill it.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string prefix = Prefix();
  if (size == 0) return 0;
  std::ofstream(prefix + ".bin", std::ios::binary) << std::string(data[0], 'x');
  std::ofstream(prefix + ".idx", std::ios::binary)
      .write(reinterpret_cast<const char*>(data) + 1, static_cast<std::streamsize>(size - 1));
  const auto reader = cairn::corpus::IndexedReader::Open(prefix);
  if (reader.ok()) {
    const bool valid = cairn::corpus::VerifyIndexed(**reader, true).ok();
    const uint64_t token_bytes = cairn::corpus::IndexedDtypeBytes((*reader)->header().dtype);
    uint64_t end = 0;
    const auto follow = [&](const int32_t* lengths, const int64_t* pointers, size_t count) {
      for (size_t i = 0; i < count; ++i) {
        if (valid && (lengths[i] < 0 || static_cast<uint64_t>(pointers[i]) != end)) std::abort();
        end += token_bytes * static_cast<uint64_t>(lengths[i]);
      }
      return absl::OkStatus();
    };
    const bool visited = (*reader)->VisitLengthsAndPointers(follow).ok();
    uint64_t modes = 0;
    const bool modes_read = (*reader)
                                ->VisitModes([&](const int8_t*, size_t count) {
                                  modes += count;
                                  return absl::OkStatus();
                                })
                                .ok();
    if (valid && (*reader)->multimodal() && (!modes_read || modes != (*reader)->header().sequences)) std::abort();
    if (valid && (!visited || end != (*reader)->bin_bytes())) std::abort();
  }
  unlink((prefix + ".bin").c_str());
  unlink((prefix + ".idx").c_str());
  return 0;
}
