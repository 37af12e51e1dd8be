// Declares `cairn doctor`, which checks what saves and loads need from this machine, and says what to change.
#ifndef CAIRN_CLI_COMMANDS_DOCTOR_COMMAND_H_
#define CAIRN_CLI_COMMANDS_DOCTOR_COMMAND_H_

#include "cli/base/command.h"

namespace cairn::cli {

void AddDoctorCommand(Command app, CommandContext& context);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_COMMANDS_DOCTOR_COMMAND_H_
