// Declares `cairn list` and `cairn show`: committed checkpoints, from the coordinator or straight from storage.
#ifndef CAIRN_CLI_COMMANDS_LIST_COMMAND_H_
#define CAIRN_CLI_COMMANDS_LIST_COMMAND_H_

#include "cli/base/command.h"

namespace cairn::cli {

void AddListCommand(Command app, CommandContext& context);
void AddShowCommand(Command app, CommandContext& context);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_COMMANDS_LIST_COMMAND_H_
