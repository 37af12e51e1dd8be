// Keeps random secrets below a root, each in a file that only its owner can read.
#ifndef CAIRN_COMMON_FILE_SECRET_FILE_H_
#define CAIRN_COMMON_FILE_SECRET_FILE_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/file/confined_directory.h"

namespace cairn {

// A secret is 32 random bytes in hexadecimal.
inline constexpr size_t kSecretLength = 64;

// Returns the secret at `path`. DATA_LOSS (FILE_MISSING): there is no file; (FILE_TRUNCATED): the file does not hold a
// secret. Else the errors of ConfinedDirectory.
absl::StatusOr<std::string> ReadSecret(ConfinedDirectory& root, std::string_view path);

// Returns the secret at `path`; makes it durably if there is no file. Only the holder of the root's lock may call this,
// so that two processes never make it at the same time.
absl::StatusOr<std::string> ReadOrMakeSecret(ConfinedDirectory& root, std::string_view path);

}  // namespace cairn

#endif  // CAIRN_COMMON_FILE_SECRET_FILE_H_
