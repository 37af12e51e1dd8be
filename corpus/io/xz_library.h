// Opens liblzma at run time, so that Cairn needs it only where an .xz file is read.
#ifndef CAIRN_CORPUS_IO_XZ_LIBRARY_H_
#define CAIRN_CORPUS_IO_XZ_LIBRARY_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"

namespace cairn::corpus::xz {

// lzma_stream as <lzma.h> of liblzma 5 declares it. Its layout is a part of the library's binary interface.
struct Stream {
  const uint8_t* next_in = nullptr;
  size_t avail_in = 0;
  uint64_t total_in = 0;
  uint8_t* next_out = nullptr;
  size_t avail_out = 0;
  uint64_t total_out = 0;
  const void* allocator = nullptr;
  void* internal = nullptr;
  void* reserved_pointers[4] = {};
  uint64_t seek_position = 0;
  uint64_t reserved_integer = 0;
  size_t reserved_sizes[2] = {};
  int reserved_enums[2] = {};
};
static_assert(sizeof(Stream) == 136 && sizeof(void*) == 8);

// Values of lzma_ret.
enum Result : int {
  kOk = 0,
  kStreamEnd = 1,
  kUnsupportedCheck = 3,
  kNoMemory = 5,
  kMemoryLimit = 6,
  kNotXz = 7,
  kUnknownOptions = 8,
  kDamaged = 9,
  kNoProgress = 10,
};

// Values of lzma_action.
enum Action : int { kRun = 0, kFinish = 3 };

// Flags of lzma_stream_decoder.
inline constexpr uint32_t kTellUnsupportedCheck = 0x02;
inline constexpr uint32_t kConcatenated = 0x08;

struct Library {
  Result (*stream_decoder)(Stream* stream, uint64_t memory_limit, uint32_t flags) = nullptr;
  Result (*code)(Stream* stream, Action action) = nullptr;
  void (*end)(Stream* stream) = nullptr;
};

// Returns the library, which stays open until the process ends. UNSUPPORTED: this machine has none. Thread-safe.
absl::StatusOr<const Library*> OpenLibrary();

}  // namespace cairn::corpus::xz

#endif  // CAIRN_CORPUS_IO_XZ_LIBRARY_H_
