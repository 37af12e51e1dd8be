// Makes a file without a name.
#ifndef CAIRN_CORPUS_IO_NAMELESS_FILE_H_
#define CAIRN_CORPUS_IO_NAMELESS_FILE_H_

#include <string>

#include "common/file/unique_fd.h"

namespace cairn::corpus {

// Opens a new file on the file system of `directory` for reading and writing, also with `flags` (O_DIRECT). The kernel
// frees it however the process ends: it is made with O_TMPFILE where the file system has that, else it loses its name
// at once. If the result is not valid, errno says why; EINVAL where O_DIRECT is refused.
UniqueFd OpenNameless(const std::string& directory, int flags);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_IO_NAMELESS_FILE_H_
