// Makes what a program prints for `--version`.
#ifndef CAIRN_COMMON_BASE_VERSION_TEXT_H_
#define CAIRN_COMMON_BASE_VERSION_TEXT_H_

#include <string>
#include <string_view>

namespace cairn {

// "cairn 0.1.0 (commit 0123456789ab)" with the commit that the program was built from; " with changes" stands behind it
// if the checkout had changes. It is "(unknown commit)" in tests, and in a program that was built without a git
// checkout or not by tools/build.
std::string VersionText(std::string_view program);

// Does the same for a commit as tools/build gives it; an empty one means that it is not known.
std::string VersionTextOf(std::string_view program, std::string_view commit);

}  // namespace cairn

#endif  // CAIRN_COMMON_BASE_VERSION_TEXT_H_
