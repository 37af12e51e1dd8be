// Declares `cairn down`, which ends the processes that `cairn up` or `cairn run` has started.
#ifndef CAIRN_CLI_COMMANDS_DOWN_COMMAND_H_
#define CAIRN_CLI_COMMANDS_DOWN_COMMAND_H_

#include "cli/base/command.h"

namespace cairn::cli {

void AddDownCommand(Command app, CommandContext& context);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_COMMANDS_DOWN_COMMAND_H_
