// Declares `cairn prune`, `cairn retention`, `cairn pin` and `cairn unpin`: which checkpoints of a job are kept.
#ifndef CAIRN_CLI_COMMANDS_RETENTION_COMMAND_H_
#define CAIRN_CLI_COMMANDS_RETENTION_COMMAND_H_

#include "cli/base/command.h"

namespace cairn::cli {

void AddPruneCommand(Command app, CommandContext& context);
void AddRetentionCommand(Command app, CommandContext& context);
// Adds `pin` and `unpin`.
void AddPinCommands(Command app, CommandContext& context);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_COMMANDS_RETENTION_COMMAND_H_
