// Describes where `cairn doctor` runs, in the words that a report of an error needs. It names no user, no address and
// no credential.
#ifndef CAIRN_CLI_COMMANDS_ENVIRONMENT_H_
#define CAIRN_CLI_COMMANDS_ENVIRONMENT_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "cli/commands/diagnosis.h"

namespace cairn::cli {

// Returns notes about the program, the system, the GPU's driver, Python's packages and, of a root that is a directory
// here, its file system. `root` may be empty. What cannot be found out is said to be unknown. It warns if another
// distribution stands in the place of the package or of this command.
std::vector<Finding> DescribeEnvironment(const std::string& root);

// Returns the type and the options of the file system that holds an absolute path without symbolic links, for example
// "nfs4 (rw,noatime) at /mnt"; "" if `mountinfo`, the content of /proc/self/mountinfo, has none. The source of the
// mount and the options of its kind are left out, because they may hold addresses and names.
std::string FileSystemOf(absl::string_view mountinfo, absl::string_view path);

// Returns the version in the content of /proc/driver/nvidia/version, for example "NVIDIA 550.54.15"; "" if it has none.
std::string GpuDriverOf(absl::string_view content);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_COMMANDS_ENVIRONMENT_H_
