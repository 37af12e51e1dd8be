// This library is preloaded into the programs. It stands between them and the file system, counts what they call below
// the directory FAULTS_ROOT, and makes the call that the page FAULTS_PAGE names go wrong. It writes what they change to
// the file FAULTS_RECORD while the page says so. Without FAULTS_PAGE all calls go through.
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "tests/fault/file_layer/control.h"
#include "tests/fault/file_layer/record.h"

namespace cairn::testing {
namespace {

template <typename Function>
Function* Real(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

bool Fails(const Fault& fault) { return fault.action == Action::kFail || fault.action == Action::kFailFrom; }

// Makes a call that returns -1 and sets errno when it fails, as the fault says.
template <typename Call>
auto Run(Kind kind, const char* name, const std::string& path, Call&& call) -> decltype(call()) {
  if (!Swept(path)) return call();
  const Fault fault = Meet(kind, name, path);
  if (Fails(fault)) {
    errno = fault.error;
    return -1;
  }
  const auto result = call();
  if (fault.action == Action::kKillMiddle || fault.action == Action::kKillAfter) Die();
  if (fault.action != Action::kLie || result < 0) return result;
  errno = fault.error;
  return -1;
}

// Makes a call that transfers bytes: `call` takes how many.
template <typename Call>
ssize_t Transfer(Kind kind, const char* name, int fd, size_t size, Call&& call) {
  const std::string path = PathOf(fd);
  if (!Swept(path)) return call(size);
  const Fault fault = Meet(kind, name, path);
  if (Fails(fault)) {
    errno = fault.error;
    return -1;
  }
  const bool direct = (fcntl(fd, F_GETFL) & O_DIRECT) != 0;
  size_t half = direct ? size / 2 / 4096 * 4096 : size / 2;
  if (half == 0) half = size;
  if (fault.action == Action::kKillMiddle) {
    if (half < size) call(half);
    Die();
  }
  const ssize_t result = call(fault.action == Action::kShort ? half : size);
  if (fault.action == Action::kKillAfter) Die();
  if (fault.action != Action::kLie || result < 0) return result;
  errno = fault.error;
  return -1;
}

// Writes down what a write has written. `offset` is that of the file where the call takes none.
ssize_t Written(Turn& turn, int fd, const void* bytes, ssize_t result, off_t offset) {
  if (result > 0 && turn.records()) {
    const std::string path = PathOf(fd);
    if (Swept(path)) {
      turn.Add(Event::kWrite, InodeOf(fd), path, "", static_cast<uint64_t>(offset),
               std::string_view(static_cast<const char*>(bytes), static_cast<size_t>(result)));
    }
  }
  return result;
}

int Open(const char* name, int directory, const char* path, int flags, mode_t mode) {
  const auto real = Real<int(int, const char*, int, ...)>("openat");
  const std::string whole = PathIn(directory, path);
  const bool creates = (flags & O_CREAT) != 0;
  return Run(creates ? Kind::kCreate : Kind::kOpen, name, whole, [&] {
    Turn turn;
    const bool changes = turn.records() && Swept(whole) && (flags & (O_CREAT | O_TRUNC)) != 0;
    const uint64_t before = changes ? InodeOf(whole) : 0;
    const int fd = real(directory, path, flags, mode);
    if (fd < 0 || !changes) return fd;
    if (before == 0) turn.Add(Event::kCreate, InodeOf(fd), PathOf(fd));
    if (before != 0 && (flags & O_TRUNC) != 0) turn.Add(Event::kTruncate, InodeOf(fd), PathOf(fd));
    return fd;
  });
}

// Makes a call that changes a name, and writes it down when it has succeeded.
template <typename Call>
int Change(Kind kind, const char* name, Event event, const std::string& path, const std::string& other, Call&& call) {
  return Run(kind, name, path, [&] {
    Turn turn;
    const int result = call();
    if (result == 0 && Swept(path)) {
      turn.Add(event, turn.records() ? InodeOf(other.empty() ? path : other) : 0, path, other);
    }
    return result;
  });
}

int Sync(const char* name, int fd) {
  return Run(Kind::kSync, name, PathOf(fd), [&] {
    Turn turn;
    const int result = Real<int(int)>(name)(fd);
    if (result == 0 && turn.records() && Swept(PathOf(fd))) turn.Add(Event::kSync, InodeOf(fd), PathOf(fd));
    return result;
  });
}

template <typename Call>
int Resize(Kind kind, const char* name, int fd, off_t size, Call&& call) {
  return Run(kind, name, PathOf(fd), [&] {
    Turn turn;
    const int result = call();
    if (result == 0 && turn.records() && Swept(PathOf(fd))) {
      turn.Add(Event::kTruncate, InodeOf(fd), PathOf(fd), "", static_cast<uint64_t>(size));
    }
    return result;
  });
}

mode_t ModeOf(int flags, va_list list) { return (flags & O_CREAT) != 0 ? va_arg(list, mode_t) : 0; }

}  // namespace
}  // namespace cairn::testing

using namespace cairn::testing;

extern "C" {

int open(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = ModeOf(flags, list);
  va_end(list);
  return Open("open", AT_FDCWD, path, flags, mode);
}

int openat(int directory, const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = ModeOf(flags, list);
  va_end(list);
  return Open("openat", directory, path, flags, mode);
}

// Descriptors are given back whatever the call returns.
int close(int fd) {
  const auto real = Real<int(int)>("close");
  const std::string path = PathOf(fd);
  if (!Swept(path)) return real(fd);
  const Fault fault = Meet(Kind::kClose, "close", path);
  const int result = real(fd);
  if (fault.action == Action::kKillMiddle || fault.action == Action::kKillAfter) Die();
  if (!Fails(fault) && fault.action != Action::kLie) return result;
  errno = fault.error;
  return -1;
}

ssize_t read(int fd, void* bytes, size_t size) {
  return Transfer(Kind::kRead, "read", fd, size,
                  [&](size_t part) { return Real<ssize_t(int, void*, size_t)>("read")(fd, bytes, part); });
}

ssize_t pread(int fd, void* bytes, size_t size, off_t offset) {
  return Transfer(Kind::kRead, "pread", fd, size, [&](size_t part) {
    return Real<ssize_t(int, void*, size_t, off_t)>("pread")(fd, bytes, part, offset);
  });
}

ssize_t write(int fd, const void* bytes, size_t size) {
  return Transfer(Kind::kWrite, "write", fd, size, [&](size_t part) {
    Turn turn;
    const off_t offset = !turn.records()                        ? 0
                         : (fcntl(fd, F_GETFL) & O_APPEND) != 0 ? lseek(fd, 0, SEEK_END)
                                                                : lseek(fd, 0, SEEK_CUR);
    return Written(turn, fd, bytes, Real<ssize_t(int, const void*, size_t)>("write")(fd, bytes, part), offset);
  });
}

ssize_t pwrite(int fd, const void* bytes, size_t size, off_t offset) {
  return Transfer(Kind::kWrite, "pwrite", fd, size, [&](size_t part) {
    Turn turn;
    const auto real = Real<ssize_t(int, const void*, size_t, off_t)>("pwrite");
    return Written(turn, fd, bytes, real(fd, bytes, part, offset), offset);
  });
}

int fsync(int fd) { return Sync("fsync", fd); }
int fdatasync(int fd) { return Sync("fdatasync", fd); }

int linkat(int from_directory, const char* from, int to_directory, const char* to, int flags) noexcept {
  const std::string path = PathIn(from_directory, from), other = PathIn(to_directory, to);
  return Change(Kind::kLink, "linkat", Event::kLink, path, other, [&] {
    const auto real = Real<int(int, const char*, int, const char*, int)>("linkat");
    return real(from_directory, from, to_directory, to, flags);
  });
}

int rename(const char* from, const char* to) noexcept {
  return Change(Kind::kRename, "rename", Event::kRename, PathIn(AT_FDCWD, from), PathIn(AT_FDCWD, to),
                [&] { return Real<int(const char*, const char*)>("rename")(from, to); });
}

int renameat(int from_directory, const char* from, int to_directory, const char* to) noexcept {
  const std::string path = PathIn(from_directory, from), other = PathIn(to_directory, to);
  return Change(Kind::kRename, "renameat", Event::kRename, path, other, [&] {
    return Real<int(int, const char*, int, const char*)>("renameat")(from_directory, from, to_directory, to);
  });
}

int renameat2(int from_directory, const char* from, int to_directory, const char* to, unsigned flags) noexcept {
  const std::string path = PathIn(from_directory, from), other = PathIn(to_directory, to);
  return Change(Kind::kRename, "renameat2", Event::kRename, path, other, [&] {
    const auto real = Real<int(int, const char*, int, const char*, unsigned)>("renameat2");
    return real(from_directory, from, to_directory, to, flags);
  });
}

int unlinkat(int directory, const char* name, int flags) noexcept {
  const bool is_directory = (flags & AT_REMOVEDIR) != 0;
  return Change(is_directory ? Kind::kRemoveDirectory : Kind::kUnlink, "unlinkat",
                is_directory ? Event::kRemove : Event::kUnlink, PathIn(directory, name), "",
                [&] { return Real<int(int, const char*, int)>("unlinkat")(directory, name, flags); });
}

int unlink(const char* name) noexcept {
  return Change(Kind::kUnlink, "unlink", Event::kUnlink, PathIn(AT_FDCWD, name), "",
                [&] { return Real<int(const char*)>("unlink")(name); });
}

int rmdir(const char* name) noexcept {
  return Change(Kind::kRemoveDirectory, "rmdir", Event::kRemove, PathIn(AT_FDCWD, name), "",
                [&] { return Real<int(const char*)>("rmdir")(name); });
}

int mkdirat(int directory, const char* name, mode_t mode) noexcept {
  return Change(Kind::kMakeDirectory, "mkdirat", Event::kMakeDirectory, PathIn(directory, name), "",
                [&] { return Real<int(int, const char*, mode_t)>("mkdirat")(directory, name, mode); });
}

int mkdir(const char* name, mode_t mode) noexcept {
  return Change(Kind::kMakeDirectory, "mkdir", Event::kMakeDirectory, PathIn(AT_FDCWD, name), "",
                [&] { return Real<int(const char*, mode_t)>("mkdir")(name, mode); });
}

int ftruncate(int fd, off_t size) noexcept {
  return Resize(Kind::kTruncate, "ftruncate", fd, size, [&] { return Real<int(int, off_t)>("ftruncate")(fd, size); });
}

// What is allocated reads as zeros. A file that grows by it has its new length, which is what the record tells.
int fallocate(int fd, int mode, off_t offset, off_t size) {
  return Run(Kind::kAllocate, "fallocate", PathOf(fd), [&] {
    Turn turn;
    struct stat before = {};
    if (turn.records()) fstat(fd, &before);
    const int result = Real<int(int, int, off_t, off_t)>("fallocate")(fd, mode, offset, size);
    const bool grows = (mode & FALLOC_FL_KEEP_SIZE) == 0 && offset + size > before.st_size;
    if (result == 0 && turn.records() && grows && Swept(PathOf(fd))) {
      turn.Add(Event::kTruncate, InodeOf(fd), PathOf(fd), "", static_cast<uint64_t>(offset + size));
    }
    return result;
  });
}

// It returns the errno.
int posix_fallocate(int fd, off_t offset, off_t size) {
  const int result = Run(Kind::kAllocate, "posix_fallocate", PathOf(fd), [&] {
    Turn turn;
    struct stat before = {};
    if (turn.records()) fstat(fd, &before);
    errno = Real<int(int, off_t, off_t)>("posix_fallocate")(fd, offset, size);
    if (errno != 0) return -1;
    if (turn.records() && offset + size > before.st_size && Swept(PathOf(fd))) {
      turn.Add(Event::kTruncate, InodeOf(fd), PathOf(fd), "", static_cast<uint64_t>(offset + size));
    }
    return 0;
  });
  return result == 0 ? 0 : errno;
}

int fstat(int fd, struct stat* info) noexcept {
  return Run(Kind::kLook, "fstat", PathOf(fd), [&] { return Real<int(int, struct stat*)>("fstat")(fd, info); });
}

int fstatat(int directory, const char* name, struct stat* info, int flags) noexcept {
  return Run(Kind::kLook, "fstatat", PathIn(directory, name),
             [&] { return Real<int(int, const char*, struct stat*, int)>("fstatat")(directory, name, info, flags); });
}

int stat(const char* name, struct stat* info) noexcept {
  return Run(Kind::kLook, "stat", PathIn(AT_FDCWD, name),
             [&] { return Real<int(const char*, struct stat*)>("stat")(name, info); });
}

int statx(int directory, const char* name, int flags, unsigned mask, struct statx* info) noexcept {
  return Run(Kind::kLook, "statx", PathIn(directory, name), [&] {
    return Real<int(int, const char*, int, unsigned, struct statx*)>("statx")(directory, name, flags, mask, info);
  });
}

struct dirent* readdir(DIR* directory) {
  const auto real = Real<struct dirent*(DIR*)>("readdir");
  const std::string path = PathOf(dirfd(directory));
  if (!Swept(path)) return real(directory);
  const Fault fault = Meet(Kind::kList, "readdir", path);
  if (fault.action == Action::kKillMiddle || fault.action == Action::kKillAfter) Die();
  if (!Fails(fault)) return real(directory);
  errno = fault.error;
  return nullptr;
}

// Where locks are local to a machine, they keep nobody on another one out.
int flock(int fd, int operation) noexcept {
  const Page* page = SharedPage();
  if (page != nullptr && page->locks_for_all != 0) return 0;
  return Real<int(int, int)>("flock")(fd, operation);
}

ssize_t sendmsg(int fd, const struct msghdr* message, int flags) {
  const Fault fault = Meet(Kind::kSend, "sendmsg", "to another process");
  const ssize_t result = Real<ssize_t(int, const struct msghdr*, int)>("sendmsg")(fd, message, flags);
  if (fault.action != Action::kNothing) Die();
  return result;
}

}  // extern "C"
