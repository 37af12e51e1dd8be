#include "python/native/forked_child.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>
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

// The names that were given. They are never removed, and no lock guards them: a child may have been forked while
// another thread added one.
struct Name {
  char text[sizeof(sockaddr_un::sun_path)] = {};
  Name* next = nullptr;
};
std::atomic<Name*> names{nullptr};

bool IsGiven(std::string_view name) {
  for (const Name* each = names; each != nullptr; each = each->next) {
    if (name == each->text) return true;
  }
  return false;
}

bool IsParents(int descriptor) {
  sockaddr_un peer;
  socklen_t size = sizeof(peer);
  if (getpeername(descriptor, reinterpret_cast<sockaddr*>(&peer), &size) != 0 || peer.sun_family != AF_UNIX)
    return false;
  constexpr socklen_t kHead = offsetof(sockaddr_un, sun_path);
  if (size <= kHead || size > sizeof(peer) || peer.sun_path[0] == '\0') return false;
  const std::string_view path(peer.sun_path, strnlen(peer.sun_path, size - kHead));
  return IsGiven(path.substr(path.rfind('/') + 1));
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
  if (names == nullptr) return;
  ForEachDescriptor([](int descriptor) {
    if (IsParents(descriptor)) CutOff(descriptor);
  });
}

[[gnu::constructor]] void Register() { pthread_atfork(nullptr, nullptr, AfterFork); }

}  // namespace

int64_t cairn_keep_from_children(const char* file_name) {
  const std::string_view name(file_name);
  if (name.empty() || name.size() >= sizeof(Name::text)) return -1;
  if (IsGiven(name)) return 0;
  auto* added = new Name{.next = names};
  name.copy(added->text, name.size());
  while (!names.compare_exchange_weak(added->next, added)) {
  }
  return 0;
}
