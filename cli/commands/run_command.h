// Declares `cairn run`, which runs a training command together with the coordinator and the agents that it needs.
#ifndef CAIRN_CLI_COMMANDS_RUN_COMMAND_H_
#define CAIRN_CLI_COMMANDS_RUN_COMMAND_H_

#include <string>
#include <vector>

#include "cli/base/command.h"

namespace cairn::cli {

// `training`: the words behind "--". The caller must have filled it when the command's action runs.
Command AddRunCommand(Command app, CommandContext& context, const std::vector<std::string>& training);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_COMMANDS_RUN_COMMAND_H_
