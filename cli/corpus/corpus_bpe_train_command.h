// Declares `cairn corpus bpe train`, which learns a byte-level BPE vocabulary from text.
#ifndef CAIRN_CLI_CORPUS_CORPUS_BPE_TRAIN_COMMAND_H_
#define CAIRN_CLI_CORPUS_CORPUS_BPE_TRAIN_COMMAND_H_

#include "cli/base/command.h"

namespace cairn::cli {

// The command stands below `corpus bpe`.
void AddCorpusBpeTrainCommand(Command bpe, CommandContext& context);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_CORPUS_CORPUS_BPE_TRAIN_COMMAND_H_
