// Random identifiers: incarnations, request ids, tokens.
#ifndef CAIRN_COMMON_BASE_RANDOM_ID_H_
#define CAIRN_COMMON_BASE_RANDOM_ID_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace cairn {

// From the kernel's generator; never 0, which stands for "none". Thread-safe.
uint64_t RandomId();

// `bytes` random bytes as lower-case hexadecimal: a token that cannot be guessed. Thread-safe.
std::string RandomToken(int bytes = 16);

// How identities stand in messages and logs: enough to tell two apart, too little to pass for one of them. An
// incarnation, a nonce or a token is all that its owner shows to prove who it is, so none is ever printed whole.
std::string ShortId(uint64_t id);
std::string ShortId(std::string_view token);

}  // namespace cairn

#endif  // CAIRN_COMMON_BASE_RANDOM_ID_H_
