#include "common/file/confined_path.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/file/errno_error.h"
#include "common/file/retry.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

// O_NOFOLLOW|O_DIRECTORY gives ENOTDIR for a file and for a symbolic link. This distinguishes them.
int LinkOrError(int directory, const std::string& name, int error) {
  struct stat info;
  if (error == ENOTDIR && StatIn(directory, name, info) == 0 && S_ISLNK(info.st_mode)) {
    return ELOOP;
  }
  return error;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ConfinedComponents(std::string_view path) {
  std::vector<std::string> parts = absl::StrSplit(absl::string_view(path.data(), path.size()), '/');
  for (const std::string& part : parts) {
    if (part.empty() || part == "." || part == ".." || part.find('\0') != std::string::npos) {
      return MakeError(Reason::kPathEscape, absl::StrCat("the path \"", std::string(path), "\" is not below the root"));
    }
  }
  return parts;
}

absl::StatusOr<UniqueFd> EnterDirectory(int directory, const std::string& name, std::string_view path) {
  UniqueFd entered = OpenIn(directory, name, O_RDONLY | O_DIRECTORY);
  if (!entered.valid()) return ErrnoError(LinkOrError(directory, name, errno), "open", path);
  return entered;
}

UniqueFd OpenIn(int directory, const std::string& name, int flags, unsigned mode) {
  return UniqueFd(
      RetryInterrupted([&] { return openat(directory, name.c_str(), flags | O_CLOEXEC | O_NOFOLLOW, mode); }));
}

}  // namespace cairn
