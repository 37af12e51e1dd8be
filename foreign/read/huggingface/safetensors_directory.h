// Reads a directory of safetensors files, as Hugging Face writes them, as if it were a checkpoint.
#ifndef CAIRN_FOREIGN_READ_HUGGINGFACE_SAFETENSORS_DIRECTORY_H_
#define CAIRN_FOREIGN_READ_HUGGINGFACE_SAFETENSORS_DIRECTORY_H_

#include <string>

#include "absl/status/statusor.h"
#include "common/format/manifest.h"

namespace cairn {

// Reads the headers of all files that model.safetensors.index.json names, or, without an index, of all that end in
// .safetensors. Each tensor becomes one shard. Names that tied_names.h finds are aliases. A file's name is its full
// name without symbolic links (Hugging Face's cache has some, which are resolved here). Only the headers have
// checksums. Everything in the files is untrusted, and `directory` is a resolved path (ResolvePath).
// DATA_LOSS (FILE_MISSING): the directory has no such file, or a file of a numbered set (NumberedFiles) is missing;
// (FILE_TRUNCATED, BAD_SAFETENSORS): names file and tensor, also when index and files disagree, or the index lists only
// a part of a numbered set. UNIMPLEMENTED (UNSUPPORTED): a tensor has a dtype that Cairn does not know. UNAVAILABLE
// (STORAGE_ERROR).
absl::StatusOr<Manifest> ReadSafetensorsDirectory(const std::string& directory);

}  // namespace cairn

#endif  // CAIRN_FOREIGN_READ_HUGGINGFACE_SAFETENSORS_DIRECTORY_H_
