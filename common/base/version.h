// The version of Cairn.
#ifndef CAIRN_COMMON_BASE_VERSION_H_
#define CAIRN_COMMON_BASE_VERSION_H_

#include <string_view>

namespace cairn {

// The version is written only here: python/BUILD and pyproject.toml read this line.
inline constexpr std::string_view kVersion = "0.1.0";

}  // namespace cairn

#endif  // CAIRN_COMMON_BASE_VERSION_H_
