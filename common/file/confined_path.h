// Opens paths below a directory without leaving it: component by component, without following symbolic links.
#ifndef CAIRN_COMMON_FILE_CONFINED_PATH_H_
#define CAIRN_COMMON_FILE_CONFINED_PATH_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/file/unique_fd.h"

namespace cairn {

// Splits a path. INVALID_ARGUMENT (PATH_ESCAPE): it is absolute or empty, or has an empty component, "." or "..".
absl::StatusOr<std::vector<std::string>> ConfinedComponents(std::string_view path);

// Opens the directory `name` within `directory`. `path` is for errors: the reasons of errno_error.h, PATH_ESCAPE for a
// link.
absl::StatusOr<UniqueFd> EnterDirectory(int directory, const std::string& name, std::string_view path);

// Calls openat(2) with O_CLOEXEC and O_NOFOLLOW. If the result is not valid, errno says why.
UniqueFd OpenIn(int directory, const std::string& name, int flags, unsigned mode = 0644);

}  // namespace cairn

#endif  // CAIRN_COMMON_FILE_CONFINED_PATH_H_
