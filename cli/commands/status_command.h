// Declares `cairn status`: what a job does now.
#ifndef CAIRN_CLI_COMMANDS_STATUS_COMMAND_H_
#define CAIRN_CLI_COMMANDS_STATUS_COMMAND_H_

#include "cli/base/command.h"

namespace cairn::cli {

void AddStatusCommand(Command app, CommandContext& context);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_COMMANDS_STATUS_COMMAND_H_
