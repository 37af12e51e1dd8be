// The options of commands that read whole tensors: how much memory and how many threads they use.
#ifndef CAIRN_CLI_COMMANDS_READING_OPTIONS_H_
#define CAIRN_CLI_COMMANDS_READING_OPTIONS_H_

#include <string>

#include "cli/base/command.h"

namespace cairn::cli {

struct ReadingArguments {
  std::string memory = "1GiB";
  int threads = 2;
};

// Declares --memory and --threads. `arguments` must outlive the command.
void AddReadingOptions(Command& command, ReadingArguments& arguments);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_COMMANDS_READING_OPTIONS_H_
