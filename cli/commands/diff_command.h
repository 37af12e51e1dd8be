#ifndef CAIRN_CLI_COMMANDS_DIFF_COMMAND_H_
#define CAIRN_CLI_COMMANDS_DIFF_COMMAND_H_

#include "cli/base/command.h"

namespace cairn::cli {

// Declares `cairn diff`, which says what differs between two checkpoints, whatever their layouts.
void AddDiffCommand(Command app, CommandContext& context);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_COMMANDS_DIFF_COMMAND_H_
