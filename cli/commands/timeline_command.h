// `cairn timeline`: what saves and loads did with their time.
#ifndef CAIRN_CLI_COMMANDS_TIMELINE_COMMAND_H_
#define CAIRN_CLI_COMMANDS_TIMELINE_COMMAND_H_

#include "cli/base/command.h"

namespace cairn::cli {

void AddTimelineCommand(Command app, CommandContext& context);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_COMMANDS_TIMELINE_COMMAND_H_
