#include "cli/commands/reading_options.h"

namespace cairn::cli {

void AddReadingOptions(Command& command, ReadingArguments& arguments) {
  command.AddOption("--memory", arguments.memory, "For the bytes under way, whatever the size of the model")
      .ShowDefault();
  command.AddOption("--threads", arguments.threads, "Read, permute and cast at once").Between(1, 64).ShowDefault();
}

}  // namespace cairn::cli
