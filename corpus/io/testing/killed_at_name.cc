#include "corpus/io/testing/killed_at_name.h"

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>

namespace cairn::corpus {
namespace {

constexpr int kKilled = 77;

std::atomic<int> changes_left = 0;  // 0: any number

void CountChange() {
  if (changes_left > 0 && --changes_left == 0) _exit(kKilled);
}

}  // namespace

bool KilledAtName(int change, absl::FunctionRef<void()> work) {
  const pid_t child = fork();
  if (child == 0) {
    changes_left = change;
    work();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == kKilled;
}

}  // namespace cairn::corpus

extern "C" int rename(const char* from, const char* to) noexcept {
  cairn::corpus::CountChange();
  static const auto real = reinterpret_cast<int (*)(const char*, const char*)>(dlsym(RTLD_NEXT, "rename"));
  return real(from, to);
}

extern "C" int unlink(const char* path) noexcept {
  cairn::corpus::CountChange();
  static const auto real = reinterpret_cast<int (*)(const char*)>(dlsym(RTLD_NEXT, "unlink"));
  return real(path);
}
