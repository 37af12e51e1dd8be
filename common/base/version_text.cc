#include "common/base/version_text.h"

#include "absl/strings/str_cat.h"
#include "common/base/version.h"

namespace cairn {

extern const char* const kBuildCommit;  // build_commit.cc

std::string VersionTextOf(std::string_view program, std::string_view commit) {
  return absl::StrCat(std::string(program), " ", std::string(kVersion), " (",
                      commit.empty() ? "unknown commit" : absl::StrCat("commit ", std::string(commit)), ")");
}

std::string VersionText(std::string_view program) { return VersionTextOf(program, kBuildCommit); }

}  // namespace cairn
