// Adds the command `cairn jobs`.
#ifndef CAIRN_CLI_COMMANDS_JOBS_COMMAND_H_
#define CAIRN_CLI_COMMANDS_JOBS_COMMAND_H_

#include <string>

#include "absl/status/status.h"
#include "cli/base/command.h"

namespace cairn::cli {

// Prints the jobs of `root` if that is not empty, else of the coordinator that `context` names, or else of all those
// that this user runs on this machine.
absl::Status ListJobs(const CommandContext& context, const std::string& root);

// `context` must outlive the parser.
void AddJobsCommand(Command app, CommandContext& context);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_COMMANDS_JOBS_COMMAND_H_
