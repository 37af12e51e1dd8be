// `cairn serve`: a web page that shows the jobs of a coordinator.
#ifndef CAIRN_CLI_COMMANDS_SERVE_COMMAND_H_
#define CAIRN_CLI_COMMANDS_SERVE_COMMAND_H_

#include "cli/base/command.h"

namespace cairn::cli {

void AddServeCommand(Command app, CommandContext& context);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_COMMANDS_SERVE_COMMAND_H_
