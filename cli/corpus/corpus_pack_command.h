// `cairn corpus pack`.
#ifndef CAIRN_CLI_CORPUS_CORPUS_PACK_COMMAND_H_
#define CAIRN_CLI_CORPUS_CORPUS_PACK_COMMAND_H_

#include "cli/base/command.h"

namespace cairn::cli {

void AddCorpusPackCommand(Command corpus, CommandContext& context);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_CORPUS_CORPUS_PACK_COMMAND_H_
