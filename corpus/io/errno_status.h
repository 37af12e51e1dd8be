// Chooses the reason for a failed system call on a corpus file. ErrnoError makes its words and metadata.
#ifndef CAIRN_CORPUS_IO_ERRNO_STATUS_H_
#define CAIRN_CORPUS_IO_ERRNO_STATUS_H_

#include <string_view>

#include "absl/status/status.h"

namespace cairn::corpus {

// Makes the error of a failed write, create, rename or fsync of `path`, as ErrnoError does. But an absent file or a
// link here is no file of a checkpoint, so it is a STORAGE_ERROR. `action` is a verb: "write", "create". What cannot be
// created because its directory is missing, or because something else stands there, says so, and what to do.
absl::Status OutputError(std::string_view action, std::string_view path, int error);

// Makes the error of a failed open or read of an input: INPUT_UNREADABLE.
absl::Status InputError(std::string_view action, std::string_view path, int error);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_IO_ERRNO_STATUS_H_
