// The flags of `cairn corpus bpe train`.
#ifndef CAIRN_CLI_CORPUS_TRAIN_FLAGS_H_
#define CAIRN_CLI_CORPUS_TRAIN_FLAGS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/base/command.h"
#include "cli/corpus/engine_run.h"
#include "cli/corpus/group_flags.h"
#include "cli/corpus/text_flags.h"
#include "corpus/bpe/pretokenizer.h"
#include "corpus/bpe/trainer.h"

namespace cairn::cli {

struct TrainArguments {
  std::vector<std::string> inputs;
  uint32_t vocab_size = 0;
  std::string output;
  std::string pretokenizer;
  std::string pattern;
  std::vector<std::string> special_tokens;
  uint64_t min_frequency = 1;
  std::string tie_break = "bytes";
  bool by_line = false;
  int threads = 0;  // one for each core; of a task, 1
  EngineArguments engine;
  TextArguments text;
  bool skip_bad_lines = false;
  std::string invalid_utf8 = "bytes";
  std::string memory;
  std::string temp_dir;
  bool resume = false;
  std::string checkpoint_every = "4GiB";
  std::string extend;
  std::string superwords_from;
  std::vector<std::string> vetoes;
  GroupArguments group;
};

// Adds all options of the command.
void AddTrainOptions(Command command, TrainArguments& arguments);

// Returns what the flags mean. BAD_REQUEST: they do not fit together; UNSUPPORTED: an output cannot be in an object
// store. The errors of ExpandInputs, LoadBpeVocabulary and
// CheckTraining.
absl::StatusOr<corpus::TrainOptions> ReadTrainArguments(const TrainArguments& arguments);
// BAD_PATTERN: --pattern is no regular expression.
absl::StatusOr<corpus::Pretokenizer> ChoosePretokenizer(const TrainArguments& arguments,
                                                        const corpus::TrainOptions& options);

// Returns all files that a training reads.
std::vector<std::string> AllInputs(const corpus::TrainOptions& options);
std::string TokenizerJson(const TrainArguments& arguments);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_CORPUS_TRAIN_FLAGS_H_
