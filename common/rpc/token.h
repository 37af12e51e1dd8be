// The shared secret between coordinator, agents and commands (--token-file).
#ifndef CAIRN_COMMON_RPC_TOKEN_H_
#define CAIRN_COMMON_RPC_TOKEN_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace cairn {

// The first line of a file, without blanks around it; "" for an empty path.
// UNAUTHENTICATED (BAD_TOKEN): unreadable, readable by others than its owner and group, or shorter than 16 characters.
absl::StatusOr<std::string> ReadTokenFile(const std::string& path);

// Takes equally long for all wrong tokens of one length. If `expected` is empty, no token is asked for, and any `given`
// is right.
bool TokenMatches(std::string_view expected, std::string_view given);

}  // namespace cairn

#endif  // CAIRN_COMMON_RPC_TOKEN_H_
