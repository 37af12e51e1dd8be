// The names of files outside of a root.
#ifndef CAIRN_COMMON_FORMAT_FULL_NAME_H_
#define CAIRN_COMMON_FORMAT_FULL_NAME_H_

#include <string_view>

namespace cairn {

// Returns what the full name of an object begins with: "s3://" or "gs://". Empty for every other name.
inline std::string_view ObjectSchemeOf(std::string_view name) {
  for (const std::string_view scheme : {"s3://", "gs://"}) {
    if (name.starts_with(scheme)) return scheme;
  }
  return {};
}

// Returns true for a name that says all of where a file is: an absolute path, or "s3://bucket/key". Files of Cairn's
// own checkpoints have other names, which count from the root on.
inline bool IsFullName(std::string_view name) { return name.starts_with('/') || !ObjectSchemeOf(name).empty(); }

}  // namespace cairn

#endif  // CAIRN_COMMON_FORMAT_FULL_NAME_H_
