// Adds the command `cairn history`.
#ifndef CAIRN_CLI_COMMANDS_HISTORY_COMMAND_H_
#define CAIRN_CLI_COMMANDS_HISTORY_COMMAND_H_

#include "cli/base/command.h"

namespace cairn::cli {

// `context` must outlive the parser.
void AddHistoryCommand(Command app, CommandContext& context);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_COMMANDS_HISTORY_COMMAND_H_
