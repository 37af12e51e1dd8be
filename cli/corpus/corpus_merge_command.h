// Declares `cairn corpus merge`, which makes one .bin/.idx pair of many.
#ifndef CAIRN_CLI_CORPUS_CORPUS_MERGE_COMMAND_H_
#define CAIRN_CLI_CORPUS_CORPUS_MERGE_COMMAND_H_

#include "cli/base/command.h"

namespace cairn::cli {

// The command stands below `corpus`.
void AddCorpusMergeCommand(Command corpus, CommandContext& context);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_CORPUS_CORPUS_MERGE_COMMAND_H_
