// `cairn help [COMMAND]`, which people type before they know --help.
#ifndef CAIRN_CLI_COMMANDS_HELP_COMMAND_H_
#define CAIRN_CLI_COMMANDS_HELP_COMMAND_H_

#include <vector>

#include "cli/base/command.h"

namespace cairn::cli {

// Returns the words of a command line, where "help COMMAND..." is replaced by "COMMAND... --help".
std::vector<const char*> WithHelpOption(int argc, const char* const* argv);

// Declares the command, so that lists of commands and completions show it.
void AddHelpCommand(Command app);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_COMMANDS_HELP_COMMAND_H_
