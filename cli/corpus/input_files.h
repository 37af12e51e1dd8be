// Reads which inputs a command line names.
#ifndef CAIRN_CLI_CORPUS_INPUT_FILES_H_
#define CAIRN_CLI_CORPUS_INPUT_FILES_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace cairn::cli {

// Returns the files that inputs stand for. A directory stands for the files below it; another name that exists, and
// "-", for itself. Any other is a pattern, whose matches are ordered by their bytes. INPUT_UNREADABLE: there is no such
// file, or a pattern matches a directory. Else as FilesBelow and FindObjects.
absl::StatusOr<std::vector<std::string>> ExpandInputs(const std::vector<std::string>& inputs);

// Splits NAME=VALUE, the value of a flag. INVALID_ARGUMENT (BAD_REQUEST): it has another form.
absl::StatusOr<std::pair<std::string, std::string>> NameAndValue(const std::string& flag, const std::string& text);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_CORPUS_INPUT_FILES_H_
