// Reads which texts a command line names.
#ifndef CAIRN_CLI_CORPUS_TEXT_INPUTS_H_
#define CAIRN_CLI_CORPUS_TEXT_INPUTS_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace cairn::cli {

// Returns the files that inputs stand for: a directory for those below it, an object's name for the objects that match
// it, because no shell expands its patterns. INPUT_UNREADABLE: there is none, or they cannot be listed.
absl::StatusOr<std::vector<std::string>> FilesOf(const std::vector<std::string>& inputs);

// Splits NAME=VALUE, the value of a flag. INVALID_ARGUMENT (BAD_REQUEST): it has another form.
absl::StatusOr<std::pair<std::string, std::string>> NameAndValue(const std::string& flag, const std::string& text);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_CORPUS_TEXT_INPUTS_H_
