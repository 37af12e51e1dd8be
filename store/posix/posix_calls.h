// Whether a PosixStorage uses O_DIRECT, and the system calls that tests put in the place of its own.
#ifndef CAIRN_STORE_POSIX_POSIX_CALLS_H_
#define CAIRN_STORE_POSIX_POSIX_CALLS_H_

#include <sys/types.h>

#include <functional>

namespace cairn {

struct PosixCalls {
  // False: O_DIRECT is used only where the page cache must not be believed (Cache::kBypass), so other bytes go through
  // it. The same happens on a file system that refuses O_DIRECT.
  bool direct = true;
  // The system calls, for tests that make them fail, or read or write less. Empty: those of the C library.
  std::function<ssize_t(int, void*, size_t, off_t)> pread = nullptr;
  std::function<ssize_t(int, const void*, size_t, off_t)> pwrite = nullptr;
};

}  // namespace cairn

#endif  // CAIRN_STORE_POSIX_POSIX_CALLS_H_
