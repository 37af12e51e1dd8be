// Repeats system calls that a signal may interrupt.
#ifndef CAIRN_COMMON_FILE_RETRY_H_
#define CAIRN_COMMON_FILE_RETRY_H_

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

}  // namespace cairn

#endif  // CAIRN_COMMON_FILE_RETRY_H_
