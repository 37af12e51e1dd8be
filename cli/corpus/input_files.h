// Reads which inputs a command line names, and keeps outputs from being among them.
#ifndef CAIRN_CLI_CORPUS_INPUT_FILES_H_
#define CAIRN_CLI_CORPUS_INPUT_FILES_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cairn::cli {

// Returns the files that inputs stand for. A directory stands for the files below it; another name that exists, and
// "-", for itself. Any other is a pattern, whose matches are ordered by their bytes. INPUT_UNREADABLE: there is no such
// file, or a pattern matches a directory. Else as FilesBelow and FindObjects.
absl::StatusOr<std::vector<std::string>> ExpandInputs(const std::vector<std::string>& inputs);

// Refuses outputs that are files of `inputs`, which would be lost. BAD_REQUEST; as CheckIsNoInput.
absl::Status CheckAreNoInputs(const std::vector<std::string>& outputs, const std::vector<std::string>& inputs);

// Returns the files in which a tokenizer may be, which is a file or a directory. Some may not be there.
std::vector<std::string> FilesOfTokenizer(const std::string& tokenizer);

// Returns the prefix of a pair P.bin, P.idx for which a person may have given the name of one of the two files, as a
// shell completes it.
std::string PrefixOfPair(std::string name);

// Splits NAME=VALUE, the value of a flag. INVALID_ARGUMENT (BAD_REQUEST): it has another form.
absl::StatusOr<std::pair<std::string, std::string>> NameAndValue(const std::string& flag, const std::string& text);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_CORPUS_INPUT_FILES_H_
