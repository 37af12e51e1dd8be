// Random identifiers: incarnations, request ids, tokens.
#ifndef CAIRN_COMMON_BASE_RANDOM_ID_H_
#define CAIRN_COMMON_BASE_RANDOM_ID_H_

#include <cstdint>
#include <string>

namespace cairn {

// From the kernel's generator; never 0, which stands for "none". Thread-safe.
uint64_t RandomId();

// `bytes` random bytes as lower-case hexadecimal: a token that cannot be guessed. Thread-safe.
std::string RandomToken(int bytes = 16);

}  // namespace cairn

#endif  // CAIRN_COMMON_BASE_RANDOM_ID_H_
