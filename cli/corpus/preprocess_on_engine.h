// Preprocesses on Ray or Spark: each part of the inputs becomes pairs of files, and these are merged.
#ifndef CAIRN_CLI_CORPUS_PREPROCESS_ON_ENGINE_H_
#define CAIRN_CLI_CORPUS_PREPROCESS_ON_ENGINE_H_

#include "absl/status/statusor.h"
#include "cli/corpus/engine_run.h"
#include "corpus/preprocess/preprocess.h"

namespace cairn::cli {

// Makes what Preprocess makes of the same options, byte for byte. Each task has options.workers threads. BAD_REQUEST:
// the order of --partitions was asked for; INPUT_UNREADABLE: an input changed, or is a pipe. Else the errors of
// EngineRun, Preprocess and MergeIndexed.
absl::StatusOr<corpus::PreprocessReport> PreprocessOnEngine(const EngineArguments& arguments,
                                                            const corpus::PreprocessOptions& options);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_CORPUS_PREPROCESS_ON_ENGINE_H_
