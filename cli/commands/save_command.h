// Declares `cairn save`, which requests a save from the coordinator and waits for its outcome.
#ifndef CAIRN_CLI_COMMANDS_SAVE_COMMAND_H_
#define CAIRN_CLI_COMMANDS_SAVE_COMMAND_H_

#include "cli/base/command.h"

namespace cairn::cli {

void AddSaveCommand(Command app, CommandContext& context);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_COMMANDS_SAVE_COMMAND_H_
