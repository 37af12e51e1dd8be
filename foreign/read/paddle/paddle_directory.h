// Reads a directory that Paddle's FlexCheckpoint wrote, as if it were a checkpoint.
#ifndef CAIRN_FOREIGN_READ_PADDLE_PADDLE_DIRECTORY_H_
#define CAIRN_FOREIGN_READ_PADDLE_PADDLE_DIRECTORY_H_

#include <string>

#include "absl/status/statusor.h"
#include "common/format/manifest.h"

namespace cairn {

// Returns the name of the directory's `<number>.metadata`; "" if it has none, or if there is no such directory.
// DATA_LOSS (BAD_FOREIGN_FILE): it has several such files.
absl::StatusOr<std::string> FindPaddleMetadata(const std::string& directory);

// Reads the metadata of that name and, for each file that it names, the places of the arrays: in a pickle (`*.distcp`)
// or in a safetensors file. Several threads read one file each. The files have no checksums. Everything in them is
// untrusted, and `directory` is a resolved path (ResolvePath). DATA_LOSS (FILE_MISSING, BAD_FOREIGN_FILE,
// BAD_SAFETENSORS, FILE_TRUNCATED): names file and tensor, also when metadata and files disagree. RESOURCE_EXHAUSTED
// (MEMORY_LIMIT): a file has so many arrays that their names do not fit into memory. Also fails as ReadPaddleMetadata
// does.
absl::StatusOr<Manifest> ReadPaddleDirectory(const std::string& directory, const std::string& metadata_name);

}  // namespace cairn

#endif  // CAIRN_FOREIGN_READ_PADDLE_PADDLE_DIRECTORY_H_
