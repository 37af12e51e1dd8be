// Says what an errno of the file system means to a user.
#ifndef CAIRN_COMMON_FILE_ERRNO_ERROR_H_
#define CAIRN_COMMON_FILE_ERRNO_ERROR_H_

#include <string_view>

#include "absl/status/status.h"
#include "common/status/reason.h"

namespace cairn {

// Makes "write /ckpt/...: No space left on device" with the reason that fits: NO_SPACE (ENOSPC, EDQUOT),
// STORAGE_READ_ONLY (EROFS, EACCES, EPERM), FILE_MISSING (ENOENT), PATH_ESCAPE (ELOOP), FSYNC_FAILED (EIO of an fsync),
// else STORAGE_ERROR. The metadata "file" is `path`, "errno" the number.
absl::Status ErrnoError(int error, std::string_view operation, std::string_view path);
// Makes the same message and metadata with a reason that the caller chooses.
absl::Status ErrnoError(Reason reason, int error, std::string_view operation, std::string_view path);

// Makes the error for what is in the place of a regular file; `mode` is stat::st_mode. It is ELOOP for a symbolic link,
// and EISDIR for a directory. For a pipe, a socket or a device it is EISDIR too, whose errno shows that no later try
// reads a file here, but the message says "/ckpt/... is no regular file".
absl::Status NoRegularFileError(unsigned mode, std::string_view operation, std::string_view path);

}  // namespace cairn

#endif  // CAIRN_COMMON_FILE_ERRNO_ERROR_H_
