// Declares `cairn up`, which runs a coordinator and its agents on this machine until Ctrl-C.
#ifndef CAIRN_CLI_COMMANDS_UP_COMMAND_H_
#define CAIRN_CLI_COMMANDS_UP_COMMAND_H_

#include "cli/base/command.h"

namespace cairn::cli {

void AddUpCommand(Command app, CommandContext& context);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_COMMANDS_UP_COMMAND_H_
