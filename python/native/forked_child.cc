#include "python/native/forked_child.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <string_view>

namespace {

// The paths that were given. They are never removed, and no lock guards them: a child may have been forked while
// another thread added one.
struct Given {
  char path[sizeof(sockaddr_un::sun_path)] = {};
  Given* next = nullptr;
};
std::atomic<Given*> given{nullptr};

std::string_view NameOf(std::string_view path) { return path.substr(path.rfind('/') + 1); }

// Returns whether a connection to `peer`, as the other side calls it, can be one to `path`. Both end with 0.
bool IsOrMayBe(const char* peer, const char* path) {
  if (std::strcmp(peer, path) == 0) return true;
  if (NameOf(peer) != NameOf(path)) return false;
  struct stat of_peer, of_path;
  if (stat(peer, &of_peer) != 0 || !S_ISSOCK(of_peer.st_mode) || stat(path, &of_path) != 0) return true;
  return of_peer.st_dev == of_path.st_dev && of_peer.st_ino == of_path.st_ino;
}

bool IsParents(int descriptor) {
  sockaddr_un peer;
  socklen_t size = sizeof(peer);
  if (getpeername(descriptor, reinterpret_cast<sockaddr*>(&peer), &size) != 0 || peer.sun_family != AF_UNIX)
    return false;
  constexpr socklen_t kHead = offsetof(sockaddr_un, sun_path);
  if (size <= kHead || size > sizeof(peer) || peer.sun_path[0] == '\0') return false;
  char path[sizeof(peer.sun_path) + 1] = {};
  std::memcpy(path, peer.sun_path, size - kHead);
  for (const Given* each = given; each != nullptr; each = each->next) {
    if (IsOrMayBe(path, each->path)) return true;
  }
  return false;
}

// Puts a socket that is connected to nobody in the place of this one: its number must not be free for others, since
// gRPC still uses it.
void CutOff(int descriptor) {
  int other = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (other < 0) {  // no number is left but this one
    close(descriptor);
    other = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  }
  if (other < 0 || other == descriptor) return;
  dup3(other, descriptor, O_CLOEXEC);
  close(other);
}

// Calls `see` for each open descriptor. It allocates nothing.
template <typename See>
void ForEachDescriptor(See see) {
  const int directory = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) {  // no number is left, or no /proc
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    const int end = static_cast<int>(std::min<rlim_t>(limit.rlim_cur, 1 << 20));
    for (int descriptor = 0; descriptor < end; ++descriptor) see(descriptor);
    return;
  }
  alignas(dirent64) char buffer[4096];
  while (true) {
    const auto filled = syscall(SYS_getdents64, directory, buffer, sizeof(buffer));
    if (filled <= 0) break;
    for (int64_t at = 0; at < filled;) {
      const auto* entry = reinterpret_cast<const dirent64*>(buffer + at);
      at += entry->d_reclen;
      int descriptor = -1;
      const char* end = entry->d_name + std::strlen(entry->d_name);
      const auto read = std::from_chars(entry->d_name, end, descriptor);
      if (read.ec == std::errc() && read.ptr == end && descriptor != directory) see(descriptor);
    }
  }
  close(directory);
}

// Runs in the child, where no other thread is.
void AfterFork() {
  if (given == nullptr) return;
  ForEachDescriptor([](int descriptor) {
    if (IsParents(descriptor)) CutOff(descriptor);
  });
}

[[gnu::constructor]] void Register() { pthread_atfork(nullptr, nullptr, AfterFork); }

}  // namespace

int64_t cairn_keep_from_children(const char* path) {
  const std::string_view text(path);
  if (NameOf(text).empty() || text.size() >= sizeof(Given::path)) return -1;
  for (const Given* each = given; each != nullptr; each = each->next) {
    if (text == each->path) return 0;
  }
  auto* added = new Given{.next = given};
  text.copy(added->path, text.size());
  while (!given.compare_exchange_weak(added->next, added)) {
  }
  return 0;
}
