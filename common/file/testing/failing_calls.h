// Takes the place of the C library's fsync, pwrite, openat and linkat in a test's process, and lets them fail. Tests of
// one process run one after the other.
#ifndef CAIRN_COMMON_FILE_TESTING_FAILING_CALLS_H_
#define CAIRN_COMMON_FILE_TESTING_FAILING_CALLS_H_

#include <atomic>
#include <cerrno>
#include <string>

namespace cairn {

struct FailingCalls {
  // So many of the next calls of fsync on directories fail with EIO, after `directory_syncs_to_pass` of them.
  std::atomic<int> directory_syncs = 0;
  std::atomic<int> directory_syncs_to_pass = 0;
  // If it is not negative, the next pwrite writes so many bytes and then fails with EIO.
  std::atomic<int> bytes_of_next_pwrite = -1;
  // So many of the next calls of openat for the name `missing_file` fail with `open_error`, an errno, after
  // `opens_to_pass` of them.
  std::string missing_file;
  std::atomic<int> opens_to_pass = 0;
  std::atomic<int> opens_that_miss_it = 0;
  std::atomic<int> open_error = ENOENT;
  // So many of the next calls of linkat fail with EIO, and link nothing.
  std::atomic<int> links = 0;
};
extern FailingCalls failing_calls;

}  // namespace cairn

#endif  // CAIRN_COMMON_FILE_TESTING_FAILING_CALLS_H_
