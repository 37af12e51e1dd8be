// Looks whether a root lies within another one, or around one. Roots must not be nested. A coordinator treats
// everything below its root as its own. So the coordinator of an outer root would find the jobs of an inner root under
// other names, and would take every checkpoint there for a damaged one.
#ifndef CAIRN_STORE_POSIX_NESTED_ROOT_H_
#define CAIRN_STORE_POSIX_NESTED_ROOT_H_

#include <filesystem>
#include <optional>
#include <string>

#include "absl/status/status.h"

namespace cairn {

// Returns whether this directory is a root: a coordinator has served it, or a command has written checkpoints there.
bool IsRoot(const std::filesystem::path& directory);

// Returns the nearest root above `directory`, which need not exist; nothing if there is none. The directory itself is
// not looked at. Symbolic links are resolved first.
std::optional<std::string> RootAbove(const std::string& directory);

// Checks that `directory`, which need not exist, may become a root, or stay one: no directory above it is a root, and
// none below it. The directories of steps are not entered, and neither are symbolic links; the search ends eight levels
// down, and after 10,000 directories. INVALID_ARGUMENT (BAD_REQUEST): there is another root above or below; the message
// and the metadata's "root" name it.
absl::Status CheckStandsAlone(const std::string& directory);

// Checks that the directory of `job` does not belong to another root within `root`. The files of such a job name it
// differently than it is named below `root`, so all of them would look damaged. INVALID_ARGUMENT (BAD_REQUEST): it
// belongs to another root.
absl::Status CheckJobOfRoot(const std::string& root, const std::string& job);

}  // namespace cairn

#endif  // CAIRN_STORE_POSIX_NESTED_ROOT_H_
