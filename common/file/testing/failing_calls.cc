#include "common/file/testing/failing_calls.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>

namespace cairn {

FailingCalls failing_calls;

}  // namespace cairn

extern "C" int fsync(int fd) {
  static const auto real = reinterpret_cast<int (*)(int)>(dlsym(RTLD_NEXT, "fsync"));
  struct stat info;
  if (cairn::failing_calls.directory_syncs > 0 && fstat(fd, &info) == 0 && S_ISDIR(info.st_mode)) {
    if (cairn::failing_calls.directory_syncs_to_pass > 0) {
      --cairn::failing_calls.directory_syncs_to_pass;
      return real(fd);
    }
    --cairn::failing_calls.directory_syncs;
    errno = EIO;
    return -1;
  }
  return real(fd);
}

extern "C" int openat(int directory, const char* name, int flags, ...) {
  static const auto real = reinterpret_cast<int (*)(int, const char*, int, ...)>(dlsym(RTLD_NEXT, "openat"));
  const bool may_fail = cairn::failing_calls.opens_that_miss_it > 0 && cairn::failing_calls.missing_file == name;
  if (may_fail && cairn::failing_calls.opens_to_pass > 0) {
    --cairn::failing_calls.opens_to_pass;
  } else if (may_fail) {
    --cairn::failing_calls.opens_that_miss_it;
    errno = cairn::failing_calls.open_error;
    return -1;
  }
  va_list list;
  va_start(list, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(list, mode_t) : 0;
  va_end(list);
  return real(directory, name, flags, mode);
}

extern "C" int linkat(int from_directory, const char* from, int to_directory, const char* to, int flags) noexcept {
  static const auto real =
      reinterpret_cast<int (*)(int, const char*, int, const char*, int)>(dlsym(RTLD_NEXT, "linkat"));
  if (cairn::failing_calls.links == 0) return real(from_directory, from, to_directory, to, flags);
  --cairn::failing_calls.links;
  errno = EIO;
  return -1;
}

extern "C" ssize_t pwrite(int fd, const void* bytes, size_t size, off_t offset) {
  static const auto real = reinterpret_cast<ssize_t (*)(int, const void*, size_t, off_t)>(dlsym(RTLD_NEXT, "pwrite"));
  const int written = cairn::failing_calls.bytes_of_next_pwrite.exchange(-1);
  if (written < 0) return real(fd, bytes, size, offset);
  if (real(fd, bytes, std::min(static_cast<size_t>(written), size), offset) >= 0) errno = EIO;
  return -1;
}
