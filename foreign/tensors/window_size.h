// Decides how large the two windows of memory are through which tensors go: while one is written or compared, the other
// one is filled.
#ifndef CAIRN_FOREIGN_TENSORS_WINDOW_SIZE_H_
#define CAIRN_FOREIGN_TENSORS_WINDOW_SIZE_H_

#include <cstdint>

namespace cairn {

// A window has at least this many bytes, or as many as all bytes that go through it if these are fewer, however little
// memory is allowed.
inline constexpr uint64_t kSmallestWindowBytes = uint64_t{16} << 20;

// The sizes, in bytes, from which the size of a window follows.
struct WindowSizes {
  uint64_t memory_bytes = 0;  // for all of the work; 64 MiB if it is less
  uint64_t reader_bytes = 0;  // the part of it that readers take
  uint64_t largest_part = 0;  // a window should have room for the largest part, which then need not be cut
  uint64_t most_bytes = 0;    // a window need not be larger, for example because no file is
};

// Returns how large each of the two windows is: at least 4 KiB, and a multiple of that.
uint64_t WindowBytes(const WindowSizes& sizes);

}  // namespace cairn

#endif  // CAIRN_FOREIGN_TENSORS_WINDOW_SIZE_H_
