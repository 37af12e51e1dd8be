// Finds the files of a Hugging Face model that are not its weights.
#ifndef CAIRN_FOREIGN_WRITE_MODEL_FILES_H_
#define CAIRN_FOREIGN_WRITE_MODEL_FILES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace cairn {

struct ModelFile {
  std::string name;
  std::string path;
};

// Returns the configurations, the tokenizer's files, the templates and the Python files of a directory, or of a prefix
// in an object store, by name; links, as in Hugging Face's cache, are followed. They are only copied: nothing runs
// them. DATA_LOSS (FILE_MISSING): the directory, or its config.json, is not there. Else fails as FullNameOf and
// ListForeign do.
absl::StatusOr<std::vector<ModelFile>> FindModelFiles(const std::string& directory);

}  // namespace cairn

#endif  // CAIRN_FOREIGN_WRITE_MODEL_FILES_H_
