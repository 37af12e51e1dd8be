// `cairn import`: what another program wrote, as a committed checkpoint.
#ifndef CAIRN_CLI_IMPORT_COMMAND_H_
#define CAIRN_CLI_IMPORT_COMMAND_H_

#include "cli/command.h"

namespace cairn::cli {

void AddImportCommand(Command app, CommandContext& context);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_IMPORT_COMMAND_H_
