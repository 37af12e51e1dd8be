// A directory of safetensors files as Hugging Face writes them, seen as a checkpoint.
#ifndef CAIRN_COMMON_STORAGE_IMPORT_DIRECTORY_H_
#define CAIRN_COMMON_STORAGE_IMPORT_DIRECTORY_H_

#include <string>

#include "absl/status/statusor.h"
#include "common/format/manifest.h"

namespace cairn {

// Reads the headers of all files that model.safetensors.index.json names, or, without an index, of all that end in
// .safetensors. Each tensor is one shard; a file's name is its absolute path without symbolic links (those of Hugging
// Face's cache are resolved here), and nothing has a checksum but the headers. Everything in the files is untrusted.
// INVALID_ARGUMENT (BAD_REQUEST): `directory` is not absolute. DATA_LOSS (FILE_MISSING): no directory, no such file in
// it; (FILE_TRUNCATED, BAD_SAFETENSORS): names file and tensor; also when index and files disagree. UNIMPLEMENTED
// (UNSUPPORTED): a dtype. UNAVAILABLE (STORAGE_ERROR).
absl::StatusOr<Manifest> ReadImportDirectory(const std::string& directory);

}  // namespace cairn

#endif  // CAIRN_COMMON_STORAGE_IMPORT_DIRECTORY_H_
