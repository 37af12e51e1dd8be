// `cairn doctor`: looks at what saves and loads will need, and says what to change.
#ifndef CAIRN_CLI_COMMANDS_DOCTOR_COMMAND_H_
#define CAIRN_CLI_COMMANDS_DOCTOR_COMMAND_H_

#include "cli/base/command.h"

namespace cairn::cli {

void AddDoctorCommand(Command app, CommandContext& context);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_COMMANDS_DOCTOR_COMMAND_H_
