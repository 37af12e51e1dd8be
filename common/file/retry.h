// Repeats system calls that a signal may interrupt.
#ifndef CAIRN_COMMON_FILE_RETRY_H_
#define CAIRN_COMMON_FILE_RETRY_H_

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string>

namespace cairn {

// Repeats `call` while it fails with EINTR, and returns its last result.
int RetryInterrupted(auto&& call) {
  int result;
  do {
    result = call();
  } while (result < 0 && errno == EINTR);
  return result;
}

// fsync(2), which a signal may interrupt on a network file system. After any other error, the written data may be lost.
inline int Fsync(int fd) {
  return RetryInterrupted([&] { return fsync(fd); });
}

inline int Truncate(int fd, uint64_t bytes) {
  return RetryInterrupted([&] { return ftruncate(fd, static_cast<off_t>(bytes)); });
}

// open(2) of a directory for reading. The path comes from the user, so links are followed.
inline int OpenNamedDirectory(const std::string& path) {
  return RetryInterrupted([&] { return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
}

// fstat(2), and fstatat(2) that follows no link.
inline int StatOf(int fd, struct stat& info) {
  return RetryInterrupted([&] { return fstat(fd, &info); });
}
inline int StatIn(int directory, const std::string& name, struct stat& info) {
  return RetryInterrupted([&] { return fstatat(directory, name.c_str(), &info, AT_SYMLINK_NOFOLLOW); });
}

// unlinkat(2). A second try after an interrupted one that did its work fails with ENOENT.
inline int UnlinkIn(int directory, const std::string& name, int flags = 0) {
  return RetryInterrupted([&] { return unlinkat(directory, name.c_str(), flags); });
}

}  // namespace cairn

#endif  // CAIRN_COMMON_FILE_RETRY_H_
