#include "common/file/testing/watched_pread.h"

#include <dlfcn.h>
#include <unistd.h>

namespace cairn {

WatchedPread watched_pread;

}  // namespace cairn

extern "C" ssize_t pread(int fd, void* bytes, size_t size, off_t offset) {
  static const auto real = reinterpret_cast<ssize_t (*)(int, void*, size_t, off_t)>(dlsym(RTLD_NEXT, "pread"));
  cairn::WatchedPread& watched = cairn::watched_pread;
  const ssize_t got = real(fd, bytes, size, offset);
  ++watched.calls;
  if (got <= 0) return got;
  watched.bytes += static_cast<uint64_t>(got);
  if (watched.to_spoil > 0) {
    const int64_t chosen = watched.spoiled_offset;
    const ssize_t at = chosen >= 0 && chosen < got ? static_cast<ssize_t>(chosen) : got / 2;
    static_cast<char*>(bytes)[at] ^= static_cast<char>(1 << watched.to_spoil-- % 8);
  }
  return got;
}
