// Reads a directory of safetensors files, as Hugging Face writes them, as if it were a checkpoint.
#ifndef CAIRN_IMPORT_SAFETENSORS_DIRECTORY_H_
#define CAIRN_IMPORT_SAFETENSORS_DIRECTORY_H_

#include <string>

#include "absl/status/statusor.h"
#include "common/format/manifest.h"

namespace cairn {

// Reads the headers of all files that model.safetensors.index.json names, or, without an index, of all that end in
// .safetensors. Each tensor becomes one shard. If config.json says
// that the word embeddings are tied and there is no "lm_head.weight", that name is an alias of the embedding. A file's
// name is its absolute path without symbolic links (Hugging Face's cache has some, which are resolved here). Only the
// headers have checksums. Everything in the files is untrusted, and `directory` is an absolute path without symbolic
// links. DATA_LOSS (FILE_MISSING): there is no such file in it; (FILE_TRUNCATED, BAD_SAFETENSORS): names file and
// tensor, also when index and files disagree. UNIMPLEMENTED (UNSUPPORTED): it has a dtype that Cairn does not know.
// UNAVAILABLE (STORAGE_ERROR).
absl::StatusOr<Manifest> ReadSafetensorsDirectory(const std::string& directory);

}  // namespace cairn

#endif  // CAIRN_IMPORT_SAFETENSORS_DIRECTORY_H_
