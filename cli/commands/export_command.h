#ifndef CAIRN_CLI_COMMANDS_EXPORT_COMMAND_H_
#define CAIRN_CLI_COMMANDS_EXPORT_COMMAND_H_

#include "cli/base/command.h"

namespace cairn::cli {

// Declares `cairn export`, which writes a checkpoint as Hugging Face safetensors.
void AddExportCommand(Command app, CommandContext& context);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_COMMANDS_EXPORT_COMMAND_H_
