// Declares `cairn corpus bpe compare`, which shows how well tokenizers encode texts.
#ifndef CAIRN_CLI_CORPUS_CORPUS_BPE_COMPARE_COMMAND_H_
#define CAIRN_CLI_CORPUS_CORPUS_BPE_COMPARE_COMMAND_H_

#include "cli/base/command.h"

namespace cairn::cli {

// The command stands below `corpus bpe`.
void AddCorpusBpeCompareCommand(Command bpe, CommandContext& context);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_CORPUS_CORPUS_BPE_COMPARE_COMMAND_H_
