// Declares `cairn repair`, which rebuilds a damaged manifest from the files of the checkpoint.
#ifndef CAIRN_CLI_COMMANDS_REPAIR_COMMAND_H_
#define CAIRN_CLI_COMMANDS_REPAIR_COMMAND_H_

#include "cli/base/command.h"

namespace cairn::cli {

void AddRepairCommand(Command app, CommandContext& context);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_COMMANDS_REPAIR_COMMAND_H_
