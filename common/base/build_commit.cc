// Holds the commit from which a program was built. Bazel compiles this file again whenever it links a program
// (`linkstamp`), so a new commit needs no other compilation. Bazel first includes a generated header with the value of
// --embed_label, which tools/build sets. In tests the value is "redacted", so a new commit does not invalidate cached
// test results.
#include <string_view>

namespace cairn {

extern const char* const kBuildCommit;
const char* const kBuildCommit = std::string_view(BUILD_EMBED_LABEL) == "redacted" ? "" : BUILD_EMBED_LABEL;

}  // namespace cairn
