// Measures what reading the `.metadata` of a directory of torch.distributed.checkpoint costs: seconds, and the most
// memory that the process had.
//
//   dcp_metadata_benchmark DIRECTORY
//
// dcp_metadata.py makes such a file of many ranks.
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <ctime>

#include "foreign/read/dcp/dcp_metadata.h"
#include "foreign/read/source/described_files.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: dcp_metadata_benchmark DIRECTORY\n");
    return 2;
  }
  const auto begin = std::chrono::steady_clock::now();
  const auto file = cairn::ReadMetadataFile(argv[1], ".metadata", cairn::ReadDcpMetadata);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (!file.ok()) {
    std::fprintf(stderr, "%s\n", file.status().ToString().c_str());
    return 1;
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  std::printf("%zu tensors, %zu chunks: %.2f s, %.2f s of processor time, at most %ld MiB\n",
              file->metadata.tensors.size(), file->metadata.entries.size(), seconds,
              static_cast<double>(std::clock()) / CLOCKS_PER_SEC, usage.ru_maxrss / 1024);
  return 0;
}
