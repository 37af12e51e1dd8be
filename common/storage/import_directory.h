// Reads a directory of safetensors files, as Hugging Face writes them, as if it were a checkpoint.
#ifndef CAIRN_COMMON_STORAGE_IMPORT_DIRECTORY_H_
#define CAIRN_COMMON_STORAGE_IMPORT_DIRECTORY_H_

#include <string>

#include "absl/status/statusor.h"
#include "common/format/manifest.h"

namespace cairn {

// Reads the headers of all files that model.safetensors.index.json names, or, without an index, of all that end in
// .safetensors. Each tensor becomes one shard. A file's name is its absolute path without symbolic links (Hugging
// Face's cache has some, which are resolved here). Only the headers have checksums. Everything in the files is
// untrusted. INVALID_ARGUMENT (BAD_REQUEST): `directory` is not absolute. DATA_LOSS (FILE_MISSING): there is no such
// directory, or no such file in it; (FILE_TRUNCATED, BAD_SAFETENSORS): names file and tensor, also when index and files
// disagree. UNIMPLEMENTED (UNSUPPORTED): it has a dtype that Cairn does not know. UNAVAILABLE (STORAGE_ERROR).
absl::StatusOr<Manifest> ReadImportDirectory(const std::string& directory);

}  // namespace cairn

#endif  // CAIRN_COMMON_STORAGE_IMPORT_DIRECTORY_H_
