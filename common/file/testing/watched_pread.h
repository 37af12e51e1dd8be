// Takes the place of the C library's pread in a test's process: counts what is read, and lets bits flip on their way
// from storage. Tests of one process run one after the other; threads may read meanwhile.
#ifndef CAIRN_COMMON_FILE_TESTING_WATCHED_PREAD_H_
#define CAIRN_COMMON_FILE_TESTING_WATCHED_PREAD_H_

#include <atomic>
#include <cstdint>

namespace cairn {

struct WatchedPread {
  std::atomic<int> calls = 0;
  std::atomic<uint64_t> bytes = 0;
  // So many of the next reads that give something get one wrong bit, each another one. `spoiled_offset` is the byte
  // whose bit flips; negative: the one in the middle of what was read.
  std::atomic<int> to_spoil = 0;
  std::atomic<int64_t> spoiled_offset = -1;
};
extern WatchedPread watched_pread;

}  // namespace cairn

#endif  // CAIRN_COMMON_FILE_TESTING_WATCHED_PREAD_H_
