#ifndef CAIRN_CLI_COMMANDS_IMPORT_COMMAND_H_
#define CAIRN_CLI_COMMANDS_IMPORT_COMMAND_H_

#include "cli/base/command.h"

namespace cairn::cli {

// Declares `cairn import`, which makes a checkpoint from another library's files.
void AddImportCommand(Command app, CommandContext& context);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_COMMANDS_IMPORT_COMMAND_H_
