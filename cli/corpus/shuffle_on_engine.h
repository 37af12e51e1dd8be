// Shuffles on Ray or Spark: tasks put the lines of parts into buckets, others sort the buckets, and this process joins.
#ifndef CAIRN_CLI_CORPUS_SHUFFLE_ON_ENGINE_H_
#define CAIRN_CLI_CORPUS_SHUFFLE_ON_ENGINE_H_

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/corpus/engine_run.h"
#include "corpus/shuffle/shuffle_options.h"

namespace cairn::cli {

// Returns the checksum of lines as reports have it.
std::string ChecksumText(const corpus::LineMultiset& lines);

// Does what a task does with `part`: corpus::ScatterPart. Returns what it prints.
absl::StatusOr<nlohmann::ordered_json> ScatterForEngine(const corpus::ShuffleOptions& options, const std::string& part,
                                                        uint32_t buckets);

// Makes what Shuffle makes of the same options, byte for byte. Each task has options.threads threads and
// options.memory. BAD_REQUEST: --resume, --no-scratch, or an output that is a stream or an object without
// options.temp_dir, which all nodes must see. CHECKSUM_MISMATCH: a bucket has not the lines that the parts gave it.
// Else the errors of EngineRun and Shuffle.
absl::StatusOr<corpus::ShuffleReport> ShuffleOnEngine(const EngineArguments& arguments,
                                                      const corpus::ShuffleOptions& options);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_CORPUS_SHUFFLE_ON_ENGINE_H_
