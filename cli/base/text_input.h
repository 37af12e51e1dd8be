// Reads whole text files for commands, such as requests and mappings.
#ifndef CAIRN_CLI_BASE_TEXT_INPUT_H_
#define CAIRN_CLI_BASE_TEXT_INPUT_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace cairn::cli {

// Returns the contents of a file; "-" means standard input. NOT_FOUND (INPUT_UNREADABLE): the file cannot be read.
// INVALID_ARGUMENT (BAD_REQUEST): the file has more than `max_bytes`.
absl::StatusOr<std::string> ReadTextInput(const std::string& path, size_t max_bytes = size_t{1} << 30);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_BASE_TEXT_INPUT_H_
