// Opens an open file once more.
#ifndef CAIRN_COMMON_FILE_OPEN_AGAIN_H_
#define CAIRN_COMMON_FILE_OPEN_AGAIN_H_

#include "absl/status/statusor.h"
#include "common/file/unique_fd.h"

namespace cairn {

// Returns a descriptor of the same file that can only be read from. It has flags and a position of its own, so it can
// be given to another process. Works for files without a name, such as memory. UNAVAILABLE (STORAGE_ERROR): the process
// has no descriptor left, or /proc is not mounted.
absl::StatusOr<UniqueFd> OpenAgainToRead(int fd);

}  // namespace cairn

#endif  // CAIRN_COMMON_FILE_OPEN_AGAIN_H_
