// Preloaded into a process: while the file that CAIRN_TEST_HANG names is there, linking a verdict into
// place hangs.
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

namespace {

void Hang(const char* name) {
  const char* flag = getenv("CAIRN_TEST_HANG");
  const size_t length = strlen(name);
  if (flag == nullptr || length < 8 || strcmp(name + length - 8, ".verdict") != 0) return;
  while (access(flag, F_OK) == 0) usleep(10'000);
}

}  // namespace

extern "C" int linkat(int from_directory, const char* from, int to_directory, const char* to, int flags) {
  Hang(to);
  static const auto real =
      reinterpret_cast<int (*)(int, const char*, int, const char*, int)>(dlsym(RTLD_NEXT, "linkat"));
  return real(from_directory, from, to_directory, to, flags);
}
