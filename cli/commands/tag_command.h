// Adds the commands `cairn tag` and `cairn untag`.
#ifndef CAIRN_CLI_COMMANDS_TAG_COMMAND_H_
#define CAIRN_CLI_COMMANDS_TAG_COMMAND_H_

#include "cli/base/command.h"

namespace cairn::cli {

// `context` must outlive the parser.
void AddTagCommands(Command app, CommandContext& context);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_COMMANDS_TAG_COMMAND_H_
