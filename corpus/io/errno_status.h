// Which of the table's reasons a failed system call on a corpus file has; words and metadata are ErrnoError's.
#ifndef CAIRN_CORPUS_IO_ERRNO_STATUS_H_
#define CAIRN_CORPUS_IO_ERRNO_STATUS_H_

#include <cerrno>
#include <string_view>

#include "absl/status/status.h"
#include "common/file/errno_error.h"

namespace cairn::corpus {

// A failed write, create, rename or fsync of `path`, as ErrnoError has it; but what is absent or a link here is no file
// of a checkpoint, and so STORAGE_ERROR. `action` is a verb: "write", "create".
inline absl::Status OutputError(std::string_view action, std::string_view path, int error) {
  if (error == ENOENT || error == ELOOP) return ErrnoError(Reason::kStorageError, error, action, path);
  return ErrnoError(error, action, path);
}

// A failed open or read of an input: INPUT_UNREADABLE.
inline absl::Status InputError(std::string_view action, std::string_view path, int error) {
  return ErrnoError(Reason::kInputUnreadable, error, action, path);
}

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_IO_ERRNO_STATUS_H_
