// Reads and compares the secret that coordinator, agents and commands share (--token-file).
#ifndef CAIRN_COMMON_RPC_TOKEN_H_
#define CAIRN_COMMON_RPC_TOKEN_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace cairn {

// Returns the first line of a file, without blanks around it; "" for an empty path. UNAUTHENTICATED (BAD_TOKEN): it is
// unreadable, can be read by others than its owner and group, or is shorter than 16 characters.
absl::StatusOr<std::string> ReadTokenFile(const std::string& path);

// Returns whether `given` is right. If `expected` is empty, anything is. It takes equally long for all wrong tokens of
// one length.
bool TokenMatches(std::string_view expected, std::string_view given);

}  // namespace cairn

#endif  // CAIRN_COMMON_RPC_TOKEN_H_
