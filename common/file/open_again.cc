#include "common/file/open_again.h"

#include <fcntl.h>

#include <cerrno>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/file/errno_error.h"

namespace cairn {

absl::StatusOr<UniqueFd> OpenAgainToRead(int fd) {
  const std::string path = absl::StrCat("/proc/self/fd/", fd);
  UniqueFd again(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!again.valid()) return ErrnoError(errno, "open", path);
  return again;
}

}  // namespace cairn
