// Checks that the files of a manifest exist with their lengths, before anything relies on them. It asks for the length
// of each file and reads none.
#ifndef CAIRN_STORE_READ_CHECK_FILES_H_
#define CAIRN_STORE_READ_CHECK_FILES_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "common/format/manifest.h"
#include "store/storage/storage.h"

namespace cairn {

struct FileSize {
  std::string name;  // in the directory, with its ending
  uint64_t bytes = 0;
};

// Checks that `directory` has all `files`, as regular files of exactly these lengths. For many files it uses several
// threads, because a network file system answers one question after the other. DATA_LOSS (FILE_MISSING,
// FILE_TRUNCATED): names the first file in order that is absent or has another length, and counts the others. Other
// errors prove no damage, and are returned before it: the errors of errno_error.h, PATH_ESCAPE for a link.
absl::Status CheckFiles(Storage& storage, std::string_view directory, std::span<const FileSize> files);

// Does the same for all files that `manifest` names; the error says whose checkpoint they belong to.
absl::Status CheckFilesOf(Storage& storage, const Manifest& manifest);

}  // namespace cairn

#endif  // CAIRN_STORE_READ_CHECK_FILES_H_
