// Tells a user where to find the name of a job or checkpoint that is missing on the command line.
#ifndef CAIRN_CLI_LOCAL_MISSING_NAME_H_
#define CAIRN_CLI_LOCAL_MISSING_NAME_H_

#include <string>
#include <vector>

#include "cli/local/run_directory.h"

namespace cairn::cli {

// Returns sentences for people, or nothing if the argument is neither a job nor a root. `argument`: "JOB", "JOB@STEP",
// "JOB@NAME" or "--root";
// `coordinator`: its address, if one is given; `running`: the coordinators that this user has started on this machine.
std::string WhereNamesAre(const std::string& argument, const std::string& coordinator,
                          const std::vector<RunDirectory::Running>& running);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_LOCAL_MISSING_NAME_H_
