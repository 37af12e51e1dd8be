// Whether the files that a manifest names stand there, before they are relied on: one stat each, nothing is read.
#ifndef CAIRN_COMMON_STORAGE_CHECK_FILES_H_
#define CAIRN_COMMON_STORAGE_CHECK_FILES_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "common/file/posix.h"
#include "common/format/manifest.h"

namespace cairn {

struct FileSize {
  std::string name;  // in the directory, with its ending
  uint64_t bytes = 0;
};

// All `files` stand in `directory`, as regular files of just these lengths. Many are looked at from several threads,
// since a network's file system answers one after the other.
// DATA_LOSS (FILE_MISSING, FILE_TRUNCATED): the first in order that is absent or has another length, and how many more.
// Anything else is no proof of damage, and comes before it: the errors of errno_error.h, PATH_ESCAPE for a link.
absl::Status CheckFiles(PosixStorage& storage, std::string_view directory, std::span<const FileSize> files);

// The same of all files that `manifest` names; the error says which checkpoint they are of.
absl::Status CheckFilesOf(PosixStorage& storage, const Manifest& manifest);

}  // namespace cairn

#endif  // CAIRN_COMMON_STORAGE_CHECK_FILES_H_
