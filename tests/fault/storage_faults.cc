// This library is preloaded into the real binaries and makes the storage below them misbehave. Environment variables
// say what goes wrong; without any, all calls go through.
//
//   FAULT_FLOCK=1                  flock succeeds for everybody, as where locks are local to a machine
//   FAULT_GATE_MKDIR=NAME:FILE     mkdirat of NAME waits until FILE exists; FILE.reached is made when it waits
//   FAULT_KILL_AFTER_LINK=ENDING   the process is killed when a name with this ending was linked
//   FAULT_FSYNC_AFTER_LINK=ENDING  the next fsync of the directory then fails, once, with EIO
//   FAULT_REMOVE_BEFORE_LINK=ENDING  the directory is removed with all that is in it, once, before a name with this
//                                  ending is linked there
//   FAULT_REMOVE_AFTER_LINK=ENDING  the same, when the name was linked
//   FAULT_OPEN_ONCE=ENDING         opening a name with this ending fails, once, with EIO
//   FAULT_DIRECT_WRITES=1          O_DIRECT is taken, and direct writes are refused with EINVAL
//   FAULT_FULL=FILE                no file below .cairn takes a byte while FILE exists
//   FAULT_INTERRUPTED=1            a signal interrupts every second call that looks at or changes files: of open those
//   of
//                                  directories, and no read or write
//   FAULT_THREADS=FILE             no thread is to be had while FILE exists
//   FAULT_TRACE=FILE               lines "create DIRECTORY", "link DIRECTORY/NAME", "fsync PATH ok|failed"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <mutex>
#include <string>

namespace {

template <typename Function>
Function* Real(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

std::string Option(const char* name) {
  const char* value = getenv(name);
  return value == nullptr ? "" : value;
}

std::string PathOf(int fd) {
  char path[4096];
  const ssize_t size = readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path, sizeof(path));
  return size < 0 ? "?" : std::string(path, static_cast<size_t>(size));
}

void Trace(const std::string& line) {
  static const std::string file = Option("FAULT_TRACE");
  if (file.empty()) return;
  const int before = errno;
  const int fd = open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  const std::string text = line + "\n";
  if (write(fd, text.data(), text.size()) < 0) abort();
  close(fd);
  errno = before;
}

// True for every second call that has a counter of its own.
bool Interrupted(std::atomic<int>& calls) {
  static const bool on = !Option("FAULT_INTERRUPTED").empty();
  if (!on || calls.fetch_add(1) % 2 != 0) return false;
  errno = EINTR;
  return true;
}

bool EndsWith(const std::string& name, const std::string& ending) { return !ending.empty() && name.ends_with(ending); }

std::mutex mutex;
std::string failing;  // the next fsync of this directory fails

}  // namespace

extern "C" {

int flock(int fd, int operation) noexcept {
  if (!Option("FAULT_FLOCK").empty()) return 0;
  return Real<int(int, int)>("flock")(fd, operation);
}

int mkdirat(int directory, const char* name, mode_t mode) noexcept {
  static std::atomic<int> calls = 0;
  if (Interrupted(calls)) return -1;
  static const std::string gate = Option("FAULT_GATE_MKDIR");
  const size_t colon = gate.find(':');
  if (colon != std::string::npos && gate.substr(0, colon) == name) {
    const std::string file = gate.substr(colon + 1);
    close(open((file + ".reached").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
    const timespec pause = {0, 5'000'000};
    while (access(file.c_str(), F_OK) != 0) nanosleep(&pause, nullptr);
  }
  return Real<int(int, const char*, mode_t)>("mkdirat")(directory, name, mode);
}

int linkat(int from_directory, const char* from, int to_directory, const char* to, int flags) noexcept {
  static const std::string kill_after = Option("FAULT_KILL_AFTER_LINK");
  static const std::string fail_after = Option("FAULT_FSYNC_AFTER_LINK");
  static const std::string remove_before = Option("FAULT_REMOVE_BEFORE_LINK");
  static const std::string remove_after = Option("FAULT_REMOVE_AFTER_LINK");
  static std::atomic<int> calls = 0;
  if (Interrupted(calls)) return -1;
  static std::atomic<bool> removed = false;
  if (EndsWith(to, remove_before) && !removed.exchange(true)) std::filesystem::remove_all(PathOf(to_directory));
  const int result =
      Real<int(int, const char*, int, const char*, int)>("linkat")(from_directory, from, to_directory, to, flags);
  if (result != 0) return result;
  Trace("link " + PathOf(to_directory) + "/" + to);
  if (EndsWith(to, remove_after) && !removed.exchange(true)) std::filesystem::remove_all(PathOf(to_directory));
  if (EndsWith(to, kill_after)) kill(getpid(), SIGKILL);
  if (EndsWith(to, fail_after)) {
    const std::lock_guard lock(mutex);
    failing = PathOf(to_directory);
  }
  return result;
}

int renameat(int from_directory, const char* from, int to_directory, const char* to) noexcept {
  static std::atomic<int> calls = 0;
  if (Interrupted(calls)) return -1;
  return Real<int(int, const char*, int, const char*)>("renameat")(from_directory, from, to_directory, to);
}

int unlinkat(int directory, const char* name, int flags) noexcept {
  static std::atomic<int> calls = 0;
  if (Interrupted(calls)) return -1;
  return Real<int(int, const char*, int)>("unlinkat")(directory, name, flags);
}

int ftruncate(int fd, off_t size) noexcept {
  static std::atomic<int> calls = 0;
  if (Interrupted(calls)) return -1;
  return Real<int(int, off_t)>("ftruncate")(fd, size);
}

int fstat(int fd, struct stat* info) noexcept {
  static std::atomic<int> calls = 0;
  if (Interrupted(calls)) return -1;
  return Real<int(int, struct stat*)>("fstat")(fd, info);
}

int fstatat(int directory, const char* name, struct stat* info, int flags) noexcept {
  static std::atomic<int> calls = 0;
  if (Interrupted(calls)) return -1;
  return Real<int(int, const char*, struct stat*, int)>("fstatat")(directory, name, info, flags);
}

int open(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(list, mode_t) : 0;
  va_end(list);
  static std::atomic<int> calls = 0;
  if ((flags & O_DIRECTORY) != 0 && Interrupted(calls)) return -1;
  return Real<int(const char*, int, ...)>("open")(path, flags, mode);
}

int statx(int directory, const char* name, int flags, unsigned mask, struct statx* info) noexcept {
  static std::atomic<int> calls = 0;
  if (Interrupted(calls)) return -1;
  return Real<int(int, const char*, int, unsigned, struct statx*)>("statx")(directory, name, flags, mask, info);
}

int fsync(int fd) {
  static std::atomic<int> calls = 0;
  if (Interrupted(calls)) return -1;
  const std::string path = PathOf(fd);
  {
    const std::lock_guard lock(mutex);
    if (!failing.empty() && failing == path) {
      failing.clear();
      Trace("fsync " + path + " failed");
      errno = EIO;
      return -1;
    }
  }
  const int result = Real<int(int)>("fsync")(fd);
  Trace("fsync " + path + (result == 0 ? " ok" : " failed"));
  return result;
}

int openat(int directory, const char* name, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(list, mode_t) : 0;
  va_end(list);
  static std::atomic<int> calls = 0;
  if (Interrupted(calls)) return -1;
  static const std::string fail_once = Option("FAULT_OPEN_ONCE");
  static std::atomic<bool> failed = false;
  if (EndsWith(name, fail_once) && !failed.exchange(true)) {
    errno = EIO;
    return -1;
  }
  const int fd = Real<int(int, const char*, int, ...)>("openat")(directory, name, flags, mode);
  if (fd >= 0 && (flags & O_CREAT) != 0) Trace("create " + PathOf(directory));
  return fd;
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*work)(void*), void* argument) noexcept {
  static const std::string none_while = Option("FAULT_THREADS");
  // Only threads that std::thread starts are refused, which are our own. gRPC keeps its threads: without them its calls
  // would wait for their keepalive.
  Dl_info caller = {};
  const bool ours = dladdr(__builtin_return_address(0), &caller) != 0 && caller.dli_fname != nullptr &&
                    std::string(caller.dli_fname).find("libstdc++") != std::string::npos;
  if (ours && !none_while.empty() && access(none_while.c_str(), F_OK) == 0) return EAGAIN;
  const auto real = Real<int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*)>("pthread_create");
  return real(thread, attributes, work, argument);
}

ssize_t write(int fd, const void* bytes, size_t size) {
  static const std::string full_while = Option("FAULT_FULL");
  if (!full_while.empty() && PathOf(fd).find("/.cairn/") != std::string::npos &&
      access(full_while.c_str(), F_OK) == 0) {
    errno = ENOSPC;
    return -1;
  }
  return Real<ssize_t(int, const void*, size_t)>("write")(fd, bytes, size);
}

ssize_t pwrite(int fd, const void* bytes, size_t size, off_t offset) {
  static const bool refused = !Option("FAULT_DIRECT_WRITES").empty();
  if (refused && (fcntl(fd, F_GETFL) & O_DIRECT) != 0) {
    sched_yield();
    errno = EINVAL;
    return -1;
  }
  return Real<ssize_t(int, const void*, size_t, off_t)>("pwrite")(fd, bytes, size, offset);
}

}  // extern "C"
