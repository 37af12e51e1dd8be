// Makes random identifiers: incarnations, request ids, tokens.
#ifndef CAIRN_COMMON_BASE_RANDOM_ID_H_
#define CAIRN_COMMON_BASE_RANDOM_ID_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace cairn {

// Returns a number from the kernel's generator. It is never 0, because 0 means "none". Thread-safe.
uint64_t RandomId();

// Returns `bytes` random bytes in lower-case hexadecimal: a token that cannot be guessed. Thread-safe.
std::string RandomToken(int bytes = 16);

// Returns random bytes. Thread-safe.
std::string RandomBytes(size_t bytes);

// Returns a part of an identity, for messages and logs: enough to distinguish two of them. Whoever knows a whole
// incarnation, nonce or token counts as its owner, so none is ever printed whole.
std::string ShortId(uint64_t id);
std::string ShortId(std::string_view token);

}  // namespace cairn

#endif  // CAIRN_COMMON_BASE_RANDOM_ID_H_
