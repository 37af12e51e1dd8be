// Makes the text that a program prints for `--version`.
#ifndef CAIRN_COMMON_BASE_VERSION_TEXT_H_
#define CAIRN_COMMON_BASE_VERSION_TEXT_H_

#include <string>
#include <string_view>

namespace cairn {

// Returns for example "cairn 0.1.0 (commit 0123456789ab)", with the commit that the program was built from, and " with
// changes" behind it if the checkout had uncommitted changes. The text has "(unknown commit)" in tests, and in a
// program that was built without a git checkout or without tools/build.
std::string VersionText(std::string_view program);

// Does the same for `commit`, in the form that tools/build gives; empty means that the commit is not known.
std::string VersionTextOf(std::string_view program, std::string_view commit);

}  // namespace cairn

#endif  // CAIRN_COMMON_BASE_VERSION_TEXT_H_
