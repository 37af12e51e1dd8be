// Reads the tokens that coordinator, agents and commands share (--token-file), and compares tokens.
#ifndef CAIRN_COMMON_RPC_TOKEN_H_
#define CAIRN_COMMON_RPC_TOKEN_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace cairn {

// The maximum number of tokens in a file. While the token is changed there are two: the new one, then the previous one.
inline constexpr size_t kMaxTokens = 2;

// Returns the tokens of a file, at least one. The file has one token a line; blanks around a token are ignored.
// UNAUTHENTICATED (BAD_TOKEN): the file is unreadable, can be read by others than its owner and group, holds no token,
// holds more than kMaxTokens, or holds a token of less than 16 characters.
absl::StatusOr<std::vector<std::string>> ReadTokenFile(const std::string& path);

// Returns whether `given` equals `expected`. If `expected` is empty, every token is accepted. The time does not depend
// on where two tokens of the same length differ.
bool TokenMatches(std::string_view expected, std::string_view given);

}  // namespace cairn

#endif  // CAIRN_COMMON_RPC_TOKEN_H_
