// Random secrets of a root, each in a file that its owner alone can read.
#ifndef CAIRN_COMMON_STORAGE_SECRET_FILE_H_
#define CAIRN_COMMON_STORAGE_SECRET_FILE_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/file/posix.h"

namespace cairn {

// 32 random bytes in hexadecimal.
inline constexpr size_t kSecretLength = 64;

// What stands at `path`. The errors of storage (FILE_MISSING: nothing does); DATA_LOSS (FILE_TRUNCATED): no secret.
absl::StatusOr<std::string> ReadSecret(PosixStorage& storage, std::string_view path);

// Reads it, or makes it, durably. Only for whoever holds the root's lock, so that nobody else makes it meanwhile.
absl::StatusOr<std::string> ReadOrMakeSecret(PosixStorage& storage, std::string_view path);

}  // namespace cairn

#endif  // CAIRN_COMMON_STORAGE_SECRET_FILE_H_
