// Bazel compiles this file anew for each program that it links (`linkstamp`), so that a new commit costs a link and no
// other compilation. It includes before it a header with the value of --embed_label, which tools/build gives; in tests
// the value is "redacted", so that a new commit leaves their results valid.
#include <string_view>

namespace cairn {

extern const char* const kBuildCommit;
const char* const kBuildCommit = std::string_view(BUILD_EMBED_LABEL) == "redacted" ? "" : BUILD_EMBED_LABEL;

}  // namespace cairn
