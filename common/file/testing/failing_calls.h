// Replaces the C library's fsync, pwrite, openat and linkat in a test's process, and makes them fail. Tests of one
// process run one after the other.
#ifndef CAIRN_COMMON_FILE_TESTING_FAILING_CALLS_H_
#define CAIRN_COMMON_FILE_TESTING_FAILING_CALLS_H_

#include <atomic>
#include <cerrno>
#include <string>

namespace cairn {

struct FailingCalls {
  // The number of calls of fsync on directories that fail with EIO, after the next `directory_syncs_to_pass` calls.
  std::atomic<int> directory_syncs = 0;
  std::atomic<int> directory_syncs_to_pass = 0;
  // If not negative, the next pwrite writes this many bytes and then fails with EIO.
  std::atomic<int> bytes_of_next_pwrite = -1;
  // `opens_that_miss_it`: the number of calls of openat for the name `missing_file` that fail with the errno
  // `open_error`, after the next `opens_to_pass` calls.
  std::string missing_file;
  std::atomic<int> opens_to_pass = 0;
  std::atomic<int> opens_that_miss_it = 0;
  std::atomic<int> open_error = ENOENT;
  // The number of the next calls of linkat that fail with EIO and link nothing.
  std::atomic<int> links = 0;
};
extern FailingCalls failing_calls;

}  // namespace cairn

#endif  // CAIRN_COMMON_FILE_TESTING_FAILING_CALLS_H_
