// Declares `cairn plan`, dry runs of the planner.
#ifndef CAIRN_CLI_COMMANDS_PLAN_COMMAND_H_
#define CAIRN_CLI_COMMANDS_PLAN_COMMAND_H_

#include "cli/base/command.h"

namespace cairn::cli {

void AddPlanCommand(Command app, CommandContext& context);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_COMMANDS_PLAN_COMMAND_H_
