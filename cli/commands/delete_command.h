// Declares `cairn delete`, which deletes one checkpoint.
#ifndef CAIRN_CLI_COMMANDS_DELETE_COMMAND_H_
#define CAIRN_CLI_COMMANDS_DELETE_COMMAND_H_

#include "cli/base/command.h"

namespace cairn::cli {

void AddDeleteCommand(Command app, CommandContext& context);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_COMMANDS_DELETE_COMMAND_H_
