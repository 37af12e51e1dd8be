// The flags of `cairn corpus bpe train` for text of several groups.
#ifndef CAIRN_CLI_CORPUS_GROUP_FLAGS_H_
#define CAIRN_CLI_CORPUS_GROUP_FLAGS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cli/base/command.h"
#include "corpus/bpe/trainer.h"

namespace cairn::cli {

struct GroupArguments {
  std::vector<std::string> groups;
  std::vector<std::string> development;
  std::vector<std::string> ratios;
  uint32_t together = 0;
  uint32_t window = 0;
  std::string alpha = "2";
};

// Adds --group, --development, --ratio, --window, --alpha and --global-merges.
void AddGroupOptions(Command command, GroupArguments& arguments);

// Puts what the flags mean into `options`. BAD_REQUEST: they do not fit together, or have another form. The errors of
// ExpandInputs.
absl::Status ReadGroupArguments(const GroupArguments& arguments, corpus::TrainOptions& options);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_CORPUS_GROUP_FLAGS_H_
