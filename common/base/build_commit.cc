// Bazel compiles this file anew for each program that it links (`linkstamp`), so a new commit costs a link and no other
// compilation. Bazel includes a generated header first, which has the value of --embed_label. tools/build gives that
// value; in tests it is "redacted", so a new commit leaves their results valid.
#include <string_view>

namespace cairn {

extern const char* const kBuildCommit;
const char* const kBuildCommit = std::string_view(BUILD_EMBED_LABEL) == "redacted" ? "" : BUILD_EMBED_LABEL;

}  // namespace cairn
