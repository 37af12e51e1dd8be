// Declares `cairn cancel`, which cancels a running save.
#ifndef CAIRN_CLI_COMMANDS_CANCEL_COMMAND_H_
#define CAIRN_CLI_COMMANDS_CANCEL_COMMAND_H_

#include "cli/base/command.h"

namespace cairn::cli {

void AddCancelCommand(Command app, CommandContext& context);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_COMMANDS_CANCEL_COMMAND_H_
