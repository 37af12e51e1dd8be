// `cairn corpus mds`: writes a pair .bin, .idx as a dataset of MosaicML's Streaming library.
#ifndef CAIRN_CLI_CORPUS_CORPUS_MDS_COMMAND_H_
#define CAIRN_CLI_CORPUS_CORPUS_MDS_COMMAND_H_

#include "cli/base/command.h"

namespace cairn::cli {

void AddCorpusMdsCommand(Command corpus, CommandContext& context);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_CORPUS_CORPUS_MDS_COMMAND_H_
