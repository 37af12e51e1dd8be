// Declares `cairn corpus shuffle`, a uniform permutation of lines.
#ifndef CAIRN_CLI_CORPUS_CORPUS_SHUFFLE_COMMAND_H_
#define CAIRN_CLI_CORPUS_CORPUS_SHUFFLE_COMMAND_H_

#include "cli/base/command.h"

namespace cairn::cli {

// The command stands below `corpus`.
void AddCorpusShuffleCommand(Command corpus, CommandContext& context);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_CORPUS_CORPUS_SHUFFLE_COMMAND_H_
