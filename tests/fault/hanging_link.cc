// This library is preloaded into a process. While the file that CAIRN_TEST_HANG names is there, a call that links a
// outcome into place hangs. A file with ".reached" behind that name has a byte for each call that did.
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

namespace {

void Hang(const char* name) {
  const char* flag = getenv("CAIRN_TEST_HANG");
  const size_t length = strlen(name);
  if (flag == nullptr || length < 8 || strcmp(name + length - 8, ".verdict") != 0) return;
  if (access(flag, F_OK) != 0) return;
  // The file counts the calls that hang.
  char reached[4096];
  snprintf(reached, sizeof(reached), "%s.reached", flag);
  const int fd = open(reached, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (write(fd, "x", 1) != 1) abort();
  close(fd);
  while (access(flag, F_OK) == 0) usleep(10'000);
}

}  // namespace

extern "C" int linkat(int from_directory, const char* from, int to_directory, const char* to, int flags) {
  Hang(to);
  static const auto real =
      reinterpret_cast<int (*)(int, const char*, int, const char*, int)>(dlsym(RTLD_NEXT, "linkat"));
  return real(from_directory, from, to_directory, to, flags);
}
