// Finds the files that the inputs of a command mean.
#ifndef CAIRN_CLI_CORPUS_INPUT_FILES_H_
#define CAIRN_CLI_CORPUS_INPUT_FILES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace cairn::cli {

// A directory stands for the files below it, and another name that exists for itself. Any other is a pattern, whose
// matches are ordered by their bytes. INPUT_UNREADABLE: there is no such file, or a pattern matches a directory. Else
// as FilesBelow and FindObjects.
absl::StatusOr<std::vector<std::string>> ExpandInputs(const std::vector<std::string>& inputs);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_CORPUS_INPUT_FILES_H_
