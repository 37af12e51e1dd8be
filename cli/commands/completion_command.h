// `cairn completion`: scripts that make shells complete `cairn`.
#ifndef CAIRN_CLI_COMMANDS_COMPLETION_COMMAND_H_
#define CAIRN_CLI_COMMANDS_COMPLETION_COMMAND_H_

#include "cli/base/command.h"

namespace cairn::cli {

// The script describes all commands that `app` has when it parses. `app` must outlive the command.
void AddCompletionCommand(ArgumentParser& app, CommandContext& context);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_COMMANDS_COMPLETION_COMMAND_H_
