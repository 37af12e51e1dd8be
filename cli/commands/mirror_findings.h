// Looks at the mirror of a root for `cairn doctor`, and foretells whether the coordinator can use it.
#ifndef CAIRN_CLI_COMMANDS_MIRROR_FINDINGS_H_
#define CAIRN_CLI_COMMANDS_MIRROR_FINDINGS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "cli/commands/diagnosis.h"
#include "store/storage/storage.h"

namespace cairn::cli {

// Examines the place that the coordinator's --mirror names. Each check's name begins with "mirror".
// `root`: as the user named it; empty if no root was given. `open_root`: the same, opened; null if it cannot be used.
// `state`: the size of one checkpoint in bytes; 0 if not known. It blocks for storage. It writes only small files below
// ".cairn/", which it removes, and nothing at all into a place that the coordinator would refuse.
std::vector<Finding> ExamineMirror(const std::string& mirror, const std::string& root, Storage* open_root,
                                   uint64_t state);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_COMMANDS_MIRROR_FINDINGS_H_
