// Declares `cairn corpus bpe`, which trains a byte-level BPE vocabulary, encodes text and compares tokenizers.
#ifndef CAIRN_CLI_CORPUS_CORPUS_BPE_COMMAND_H_
#define CAIRN_CLI_CORPUS_CORPUS_BPE_COMMAND_H_

#include "cli/base/command.h"

namespace cairn::cli {

void AddCorpusBpeCommand(Command corpus, CommandContext& context);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_CORPUS_CORPUS_BPE_COMMAND_H_
