// The version of Cairn.
#ifndef CAIRN_COMMON_BASE_VERSION_H_
#define CAIRN_COMMON_BASE_VERSION_H_

#include <string_view>

namespace cairn {

// This line is the one place of the version: python/BUILD and pyproject.toml read it.
inline constexpr std::string_view kVersion = "0.1.0";

}  // namespace cairn

#endif  // CAIRN_COMMON_BASE_VERSION_H_
