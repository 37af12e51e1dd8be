// Trains a BPE vocabulary on Ray or Spark: tasks count the words of parts of the inputs, and this process merges.
#ifndef CAIRN_CLI_CORPUS_TRAIN_ON_ENGINE_H_
#define CAIRN_CLI_CORPUS_TRAIN_ON_ENGINE_H_

#include <string>

#include "absl/status/statusor.h"
#include "cli/corpus/engine_run.h"
#include "corpus/bpe/pretokenizer.h"
#include "corpus/bpe/trainer.h"

namespace cairn::cli {

// Returns what TrainBpe returns for the same options. `output`: the file that the command makes; `work_parent` as for
// EngineRun::Start. Each task has `threads` threads. Errors of EngineRun and TrainBpe; INPUT_UNREADABLE: an input
// changed, or is a pipe.
absl::StatusOr<corpus::TrainSummary> TrainOnEngine(const EngineArguments& arguments, corpus::TrainOptions options,
                                                   const corpus::Pretokenizer& pretokenizer, int threads,
                                                   const std::string& output, const std::string& work_parent);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_CORPUS_TRAIN_ON_ENGINE_H_
