// Adds the command `cairn jobs`.
#ifndef CAIRN_CLI_JOBS_COMMAND_H_
#define CAIRN_CLI_JOBS_COMMAND_H_

#include "cli/command.h"

namespace cairn::cli {

// `context` must outlive the parser.
void AddJobsCommand(Command app, CommandContext& context);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_JOBS_COMMAND_H_
