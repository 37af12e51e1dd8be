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

// The form of an identity in messages and logs: enough to tell two apart, too little to be used as one. The owner of an
// incarnation, a nonce or a token proves by it alone who it is, so none is ever printed whole.
std::string ShortId(uint64_t id);
std::string ShortId(std::string_view token);

}  // namespace cairn

#endif  // CAIRN_COMMON_BASE_RANDOM_ID_H_
