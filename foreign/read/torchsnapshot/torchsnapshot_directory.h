// Reads a directory that torchsnapshot wrote, as if it were a checkpoint.
//
// Format: torchsnapshot's manifest.py, serialization.py and flatten.py, version 0.1.0.
#ifndef CAIRN_FOREIGN_READ_TORCHSNAPSHOT_TORCHSNAPSHOT_DIRECTORY_H_
#define CAIRN_FOREIGN_READ_TORCHSNAPSHOT_TORCHSNAPSHOT_DIRECTORY_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/format/manifest.h"

namespace cairn {

inline constexpr std::string_view kTorchsnapshotMetadataName = ".snapshot_metadata";

// Reads `.snapshot_metadata`. The parts of a path become one name, joined by ".". A tensor's shards of all ranks make
// up one tensor. If several ranks have an entry of the same path with different contents, there is one tensor or object
// for each rank, with ".rank0" and so on behind its name. A value that the metadata itself contains becomes an object
// whose bytes are its entry; foreign/read/torch/torch_value.h reads them. The files have no checksums. Everything in
// them is untrusted, and `directory` is a resolved path (ResolvePath). DATA_LOSS (FILE_MISSING,
// FILE_TRUNCATED, BAD_FOREIGN_FILE): names file and tensor. INVALID_ARGUMENT (PATH_ESCAPE, BAD_NAME, NAME_COLLISION).
// UNIMPLEMENTED (UNSUPPORTED): the metadata is YAML that is no JSON, which older versions wrote, or an entry has a type
// or a dtype that Cairn does not know.
absl::StatusOr<Manifest> ReadTorchsnapshotDirectory(const std::string& directory);

}  // namespace cairn

#endif  // CAIRN_FOREIGN_READ_TORCHSNAPSHOT_TORCHSNAPSHOT_DIRECTORY_H_
