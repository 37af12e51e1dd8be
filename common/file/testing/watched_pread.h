// Replaces the C library's pread in a test's process: counts the bytes that are read, and flips bits in them. Tests of
// one process run one after the other. Several threads may read.
#ifndef CAIRN_COMMON_FILE_TESTING_WATCHED_PREAD_H_
#define CAIRN_COMMON_FILE_TESTING_WATCHED_PREAD_H_

#include <atomic>
#include <cstdint>

namespace cairn {

struct WatchedPread {
  std::atomic<int> calls = 0;
  std::atomic<uint64_t> bytes = 0;
  // The number of the next non-empty reads that get one wrong bit, a different one each time. `spoiled_offset` is the
  // byte whose bit is flipped; if negative, the byte in the middle of the read.
  std::atomic<int> to_spoil = 0;
  std::atomic<int64_t> spoiled_offset = -1;
};
extern WatchedPread watched_pread;

}  // namespace cairn

#endif  // CAIRN_COMMON_FILE_TESTING_WATCHED_PREAD_H_
