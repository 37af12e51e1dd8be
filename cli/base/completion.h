// Writes the scripts that make shells complete a program's command line, from what the program declares.
#ifndef CAIRN_CLI_BASE_COMPLETION_H_
#define CAIRN_CLI_BASE_COMPLETION_H_

#include <string>

#include "common/process/arguments.h"

namespace cairn::cli {

// Each completes commands, options, and the values of options that have few. Where anything may stand, the shell
// completes names of files.
std::string BashCompletion(const CommandDescription& program);
std::string ZshCompletion(const CommandDescription& program);
std::string FishCompletion(const CommandDescription& program);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_BASE_COMPLETION_H_
