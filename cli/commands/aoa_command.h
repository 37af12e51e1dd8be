// Declares `cairn aoa`, the commands for the mapping language.
#ifndef CAIRN_CLI_COMMANDS_AOA_COMMAND_H_
#define CAIRN_CLI_COMMANDS_AOA_COMMAND_H_

#include "cli/base/command.h"

namespace cairn::cli {

void AddAoaCommand(Command app, CommandContext& context);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_COMMANDS_AOA_COMMAND_H_
