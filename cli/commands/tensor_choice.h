// The options of `import` and `export` that choose tensors and map their names and shapes.
#ifndef CAIRN_CLI_COMMANDS_TENSOR_CHOICE_H_
#define CAIRN_CLI_COMMANDS_TENSOR_CHOICE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/base/command.h"
#include "foreign/tensors/whole_tensors.h"

namespace cairn::cli {

struct ChoiceArguments {
  std::string mapping;
  bool reverse = false;
  std::vector<std::string> include;
  std::vector<std::string> exclude;
};

// Declares --mapping, --reverse, --include and --exclude. `arguments` must outlive the command.
void AddChoiceOptions(Command& command, ChoiceArguments& arguments);

// Reads the mapping. NOT_FOUND (INPUT_UNREADABLE), INVALID_ARGUMENT: the file cannot be read, is no mapping, or
// --reverse is given without --mapping.
absl::StatusOr<TensorChoice> ReadChoice(const ChoiceArguments& arguments);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_COMMANDS_TENSOR_CHOICE_H_
