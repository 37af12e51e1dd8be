// Reads what other programs wrote, as if it were a checkpoint of Cairn.
#ifndef CAIRN_IMPORT_IMPORT_DIRECTORY_H_
#define CAIRN_IMPORT_IMPORT_DIRECTORY_H_

#include <string>

#include "absl/status/statusor.h"
#include "common/format/manifest.h"

namespace cairn {

// Reads a directory of torch.distributed.checkpoint (it has a `.metadata`), or one of safetensors files, as Hugging
// Face writes them. Files have their absolute paths as names, without symbolic links. INVALID_ARGUMENT (BAD_REQUEST):
// `directory` is not absolute. DATA_LOSS (FILE_MISSING): there is no such directory, or nothing of either kind in it.
// Also fails as ReadDcpDirectory and ReadSafetensorsDirectory do.
absl::StatusOr<Manifest> ReadImportDirectory(const std::string& directory);

}  // namespace cairn

#endif  // CAIRN_IMPORT_IMPORT_DIRECTORY_H_
