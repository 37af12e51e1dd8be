// Writes scripts by which shells complete a program's command line, from the program's declared commands and options.
#ifndef CAIRN_CLI_BASE_COMPLETION_H_
#define CAIRN_CLI_BASE_COMPLETION_H_

#include <string>

#include "common/process/arguments.h"

namespace cairn::cli {

// Each script completes commands, options, and values of options that have a fixed set; elsewhere file names.
std::string BashCompletion(const CommandDescription& program);
std::string ZshCompletion(const CommandDescription& program);
std::string FishCompletion(const CommandDescription& program);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_BASE_COMPLETION_H_
