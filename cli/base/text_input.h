// Reads files that commands take whole, such as requests and mappings.
#ifndef CAIRN_CLI_BASE_TEXT_INPUT_H_
#define CAIRN_CLI_BASE_TEXT_INPUT_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace cairn::cli {

// Returns all of the file, which must fit in memory; "-" is standard input. NOT_FOUND (INPUT_UNREADABLE): it cannot be
// read. INVALID_ARGUMENT (BAD_REQUEST): it has more than `max_bytes`.
absl::StatusOr<std::string> ReadTextInput(const std::string& path, size_t max_bytes = size_t{1} << 30);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_BASE_TEXT_INPUT_H_
