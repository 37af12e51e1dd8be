// Chooses the reason for a failed system call on a corpus file. ErrnoError makes its words and metadata.
#ifndef CAIRN_CORPUS_IO_ERRNO_STATUS_H_
#define CAIRN_CORPUS_IO_ERRNO_STATUS_H_

#include <cerrno>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/shell_word.h"
#include "common/file/atomic_write.h"
#include "common/file/errno_error.h"
#include "common/status/reason.h"

namespace cairn::corpus {

inline absl::Status MissingDirectory(std::string_view path) {
  const std::string directory = DirectoryOf(std::string(path));
  return MakeError(
      Reason::kStorageError, absl::StrCat("create ", std::string(path), ": there is no directory ", directory),
      {{"file", std::string(path)}, {"next", absl::StrCat("Make it first: mkdir -p ", ForShell(directory))}});
}

// Makes the error of a failed write, create, rename or fsync of `path`, as ErrnoError does. But an absent file or a
// link here is no file of a checkpoint, so it is a STORAGE_ERROR. `action` is a verb: "write", "create". What cannot be
// created because its directory is missing says so, and how to make it.
inline absl::Status OutputError(std::string_view action, std::string_view path, int error) {
  if (error == ENOENT && action == "create") return MissingDirectory(path);
  if (error == ENOSPC || error == EDQUOT) {
    // The usual advice is about checkpoints.
    return WithMetadata(ErrnoError(error, action, path),
                        {{"next", "Free space there, or write to another place, and give the same command again."}});
  }
  if (error == ENOENT || error == ELOOP) return ErrnoError(Reason::kStorageError, error, action, path);
  return ErrnoError(error, action, path);
}

// Makes the error of a failed open or read of an input: INPUT_UNREADABLE.
inline absl::Status InputError(std::string_view action, std::string_view path, int error) {
  return ErrnoError(Reason::kInputUnreadable, error, action, path);
}

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_IO_ERRNO_STATUS_H_
