// Failed system calls as errors of the table, with the file and the kernel's own words.
#ifndef CAIRN_CORPUS_IO_ERRNO_STATUS_H_
#define CAIRN_CORPUS_IO_ERRNO_STATUS_H_

#include <string_view>

#include "absl/status/status.h"

namespace cairn::corpus {

// A failed write, create, rename or sync of `path`: NO_SPACE (also quotas), STORAGE_READ_ONLY (permissions, read-only
// mounts) or STORAGE_ERROR. `action` is a verb: "write", "create".
absl::Status OutputError(std::string_view action, std::string_view path, int error_number);

// A failed open or read of an input: INPUT_UNREADABLE.
absl::Status InputError(std::string_view action, std::string_view path, int error_number);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_IO_ERRNO_STATUS_H_
