// `cairn run`: a training command with the coordinator and the agents that it needs.
#ifndef CAIRN_CLI_COMMANDS_RUN_COMMAND_H_
#define CAIRN_CLI_COMMANDS_RUN_COMMAND_H_

#include <string>
#include <vector>

#include "cli/base/command.h"

namespace cairn::cli {

// Returns the command, whose training command, behind "--", must be in `training` when it is carried out.
Command AddRunCommand(Command app, CommandContext& context, const std::vector<std::string>& training);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_COMMANDS_RUN_COMMAND_H_
