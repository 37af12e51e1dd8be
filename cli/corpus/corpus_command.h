// Declares `cairn corpus`, the training-data tools.
#ifndef CAIRN_CLI_CORPUS_CORPUS_COMMAND_H_
#define CAIRN_CLI_CORPUS_CORPUS_COMMAND_H_

#include "cli/base/command.h"

namespace cairn::cli {

void AddCorpusCommand(Command app, CommandContext& context);

// Each of these declares one tool below `cairn corpus`.

}  // namespace cairn::cli

#endif  // CAIRN_CLI_CORPUS_CORPUS_COMMAND_H_
