#include "cli/commands/reading_options.h"

namespace cairn::cli {

void AddReadingOptions(Command& command, ReadingArguments& arguments) {
  command.AddOption("--memory", arguments.memory, "Memory for tensor data, for a model of any size").ShowDefault();
  command.AddOption("--threads", arguments.threads, "Threads that read, permute and cast").Between(1, 64).ShowDefault();
}

}  // namespace cairn::cli
