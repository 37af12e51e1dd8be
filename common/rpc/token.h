// Reads the secrets that coordinator, agents and commands share (--token-file), and compares that of a web page.
#ifndef CAIRN_COMMON_RPC_TOKEN_H_
#define CAIRN_COMMON_RPC_TOKEN_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace cairn {

// A file of tokens has one, or two while they are changed: the new one, then the one before.
inline constexpr size_t kMaxTokens = 2;

// Returns the tokens of a file, one a line, without blanks around them, which is never empty. UNAUTHENTICATED
// (BAD_TOKEN): the file is unreadable, or can be read by others than its owner and group; it holds no token, one that
// is shorter than 16 characters, or more than kMaxTokens.
absl::StatusOr<std::vector<std::string>> ReadTokenFile(const std::string& path);

// Returns whether `given` is right. If `expected` is empty, anything is. It takes equally long for all wrong tokens of
// one length.
bool TokenMatches(std::string_view expected, std::string_view given);

}  // namespace cairn

#endif  // CAIRN_COMMON_RPC_TOKEN_H_
