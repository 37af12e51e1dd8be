// Repeats system calls that a signal may interrupt.
#ifndef CAIRN_COMMON_FILE_RETRY_H_
#define CAIRN_COMMON_FILE_RETRY_H_

#include <unistd.h>

#include <cerrno>

namespace cairn {

// Makes `call` again as long as it fails with EINTR, and returns what it then returns.
int RetryInterrupted(auto&& call) {
  int result;
  do {
    result = call();
  } while (result < 0 && errno == EINTR);
  return result;
}

// fsync(2), which a signal may interrupt on a network file system. After any other error, what it was called for may be
// lost.
inline int Fsync(int fd) {
  return RetryInterrupted([&] { return fsync(fd); });
}

}  // namespace cairn

#endif  // CAIRN_COMMON_FILE_RETRY_H_
