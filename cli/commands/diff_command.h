#ifndef CAIRN_CLI_COMMANDS_DIFF_COMMAND_H_
#define CAIRN_CLI_COMMANDS_DIFF_COMMAND_H_

#include "cli/base/command.h"

namespace cairn::cli {

// Declares `cairn diff`, which compares two checkpoints, also if their layouts differ.
void AddDiffCommand(Command app, CommandContext& context);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_COMMANDS_DIFF_COMMAND_H_
