// Declares `cairn corpus prepare-cache`, which builds Megatron's dataset indices ahead of a training run.
#ifndef CAIRN_CLI_CORPUS_CORPUS_PREPARE_CACHE_COMMAND_H_
#define CAIRN_CLI_CORPUS_CORPUS_PREPARE_CACHE_COMMAND_H_

#include "cli/base/command.h"

namespace cairn::cli {

// The command stands below `corpus`.
void AddCorpusPrepareCacheCommand(Command corpus, CommandContext& context);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_CORPUS_CORPUS_PREPARE_CACHE_COMMAND_H_
