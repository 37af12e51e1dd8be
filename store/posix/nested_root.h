// Roots must not lie within each other. Each coordinator believes that all below its root is its own, so the outer one
// would take the inner one's files for those of jobs with other names, and every checkpoint there for a damaged one.
#ifndef CAIRN_STORE_POSIX_NESTED_ROOT_H_
#define CAIRN_STORE_POSIX_NESTED_ROOT_H_

#include <filesystem>
#include <optional>
#include <string>

#include "absl/status/status.h"

namespace cairn {

// Returns whether a coordinator has ever served this directory as its root, or a command has written there as one does.
bool IsRoot(const std::filesystem::path& directory);

// Returns the nearest root above `directory`, which need not exist; nothing if there is none. The directory itself is
// not looked at. Symbolic links are resolved first.
std::optional<std::string> RootAbove(const std::string& directory);

// Checks that `directory`, which need not exist, may become a root, or stay one: no directory above it is a root, and
// none below it. The directories of steps are not entered, and neither are symbolic links; the search ends eight levels
// down, and after 10,000 directories. INVALID_ARGUMENT (BAD_REQUEST): it may not; the message and the metadata's "root"
// name the other root.
absl::Status CheckStandsAlone(const std::string& directory);

// Checks that the directory of a job is not one of another root, which lies within `root`: read from here, the job has
// another name than its own files say, and all of them would look damaged. INVALID_ARGUMENT (BAD_REQUEST): it is one.
absl::Status CheckJobOfRoot(const std::string& root, const std::string& job);

}  // namespace cairn

#endif  // CAIRN_STORE_POSIX_NESTED_ROOT_H_
