// Reads a directory that Paddle's FlexCheckpoint wrote, as if it were a checkpoint.
#ifndef CAIRN_FOREIGN_READ_PADDLE_PADDLE_DIRECTORY_H_
#define CAIRN_FOREIGN_READ_PADDLE_PADDLE_DIRECTORY_H_

#include <string>

#include "absl/status/statusor.h"
#include "common/format/manifest.h"

namespace cairn {

// Returns the name of the directory's `<number>.metadata`; "" if it has none, or if there is no such directory.
// DATA_LOSS (BAD_FOREIGN_FILE): it has several, of several saves.
absl::StatusOr<std::string> FindPaddleMetadata(const std::string& directory);

// Reads the metadata of that name and, of each file that it names, where the arrays lie: in a pickle (`*.distcp`) or in
// a safetensors file. Every file is read by one thread of several. The files have no checksums. Everything in them is
// untrusted, and `directory` is an absolute path without symbolic links. DATA_LOSS (FILE_MISSING, BAD_FOREIGN_FILE,
// BAD_SAFETENSORS, FILE_TRUNCATED): names file and tensor, also when metadata and files disagree. Also fails as
// ReadPaddleMetadata does, and for a file of more arrays than memory holds the names of (MEMORY_LIMIT).
absl::StatusOr<Manifest> ReadPaddleDirectory(const std::string& directory, const std::string& metadata_name);

}  // namespace cairn

#endif  // CAIRN_FOREIGN_READ_PADDLE_PADDLE_DIRECTORY_H_
