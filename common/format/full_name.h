// The names of files outside of a root.
#ifndef CAIRN_COMMON_FORMAT_FULL_NAME_H_
#define CAIRN_COMMON_FORMAT_FULL_NAME_H_

#include <string_view>

namespace cairn {

// Every full name of an object begins so: "s3://bucket/key".
inline constexpr std::string_view kObjectScheme = "s3://";

// Returns true for a name that says all of where a file is: an absolute path, or "s3://bucket/key". Files of Cairn's
// own checkpoints have other names, which count from the root on.
inline bool IsFullName(std::string_view name) { return name.starts_with('/') || name.starts_with(kObjectScheme); }

}  // namespace cairn

#endif  // CAIRN_COMMON_FORMAT_FULL_NAME_H_
