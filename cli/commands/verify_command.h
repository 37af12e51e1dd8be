// Declares `cairn verify`, which reads every byte of a checkpoint.
#ifndef CAIRN_CLI_COMMANDS_VERIFY_COMMAND_H_
#define CAIRN_CLI_COMMANDS_VERIFY_COMMAND_H_

#include "cli/base/command.h"

namespace cairn::cli {

void AddVerifyCommand(Command app, CommandContext& context);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_COMMANDS_VERIFY_COMMAND_H_
