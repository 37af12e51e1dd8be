// Takes the place of the C library's fsync and pwrite in a test's process, and lets them fail. Tests of one process run
// one after the other.
#ifndef CAIRN_COMMON_FILE_TESTING_FAILING_CALLS_H_
#define CAIRN_COMMON_FILE_TESTING_FAILING_CALLS_H_

#include <atomic>

namespace cairn {

struct FailingCalls {
  // So many of the next calls of fsync on directories fail with EIO, after `directory_syncs_to_pass` of them.
  std::atomic<int> directory_syncs = 0;
  std::atomic<int> directory_syncs_to_pass = 0;
  // If it is not negative, the next pwrite writes so many bytes and then fails with EIO.
  std::atomic<int> bytes_of_next_pwrite = -1;
};
extern FailingCalls failing_calls;

}  // namespace cairn

#endif  // CAIRN_COMMON_FILE_TESTING_FAILING_CALLS_H_
