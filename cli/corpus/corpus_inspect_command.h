// Declares `cairn corpus inspect` and `cairn corpus verify`: what a .bin/.idx pair holds, and whether it is sound.
#ifndef CAIRN_CLI_CORPUS_CORPUS_INSPECT_COMMAND_H_
#define CAIRN_CLI_CORPUS_CORPUS_INSPECT_COMMAND_H_

#include "cli/base/command.h"

namespace cairn::cli {

// Both commands stand below `corpus`.
void AddCorpusInspectCommands(Command corpus, CommandContext& context);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_CORPUS_CORPUS_INSPECT_COMMAND_H_
