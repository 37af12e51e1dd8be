// Declares `cairn corpus preprocess`, which turns JSON lines into .bin/.idx.
#ifndef CAIRN_CLI_CORPUS_CORPUS_PREPROCESS_COMMAND_H_
#define CAIRN_CLI_CORPUS_CORPUS_PREPROCESS_COMMAND_H_

#include "cli/base/command.h"

namespace cairn::cli {

void AddCorpusPreprocessCommand(Command corpus, CommandContext& context);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_CORPUS_CORPUS_PREPROCESS_COMMAND_H_
