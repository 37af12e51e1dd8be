// Says what to do when a file or a socket cannot be made because of the volume that it is to be on.
#ifndef CAIRN_COMMON_FILE_FILE_ADVICE_H_
#define CAIRN_COMMON_FILE_FILE_ADVICE_H_

#include <string>

#include "absl/status/status.h"

namespace cairn {

// Returns what to do after a file or a socket could not be made at `path` because of `error` (an errno): if the volume
// is full, read-only, missing, or belongs to another user. Empty for other errors. `flag` names another directory.
std::string NextWithoutFile(int error, const std::string& path, const std::string& flag);

// Adds that to an error of common/file/errno_error.h, unless it says already what to do.
absl::Status WithNextWithoutFile(const absl::Status& status, const std::string& path, const std::string& flag);

}  // namespace cairn

#endif  // CAIRN_COMMON_FILE_FILE_ADVICE_H_
