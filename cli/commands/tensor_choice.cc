#include "cli/commands/tensor_choice.h"

#include <cstddef>

#include "absl/strings/match.h"
#include "cli/base/text_input.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "mapping/json.h"

namespace cairn::cli {
namespace {

constexpr size_t kMaxMappingBytes = size_t{64} << 20;

// The file contains JSON as for `cairn aoa resolve`, or the statements as text.
absl::StatusOr<aoa::Config> ReadMapping(const std::string& path) {
  const absl::StatusOr<std::string> read = ReadTextInput(path, kMaxMappingBytes);
  if (!read.ok() && absl::StrContains(path, "->")) {
    return WithMetadata(read.status(), {{"next",
                                         "--mapping takes a file. Write the statements into one, or give them "
                                         "through a pipe: echo 'STATEMENTS' | cairn ... --mapping -"}});
  }
  CAIRN_RETURN_IF_ERROR(read.status());
  const std::string& text = *read;
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first != std::string::npos && (text[first] == '{' || text[first] == '[')) return aoa::ParseConfig(text);
  aoa::Config config;
  config.statements = {text};
  return config;
}

}  // namespace

void AddChoiceOptions(Command& command, ChoiceArguments& arguments) {
  command.AddOption("--mapping", arguments.mapping,
                    "Statements of the mapping language, as JSON or text; - reads standard input");
  command.AddFlag("--reverse", arguments.reverse,
                  "Run the mapping backwards, so that a load's mapping can be used for export");
  command.AddOption("--include", arguments.include, "Only names of the source that match this shell pattern");
  command.AddOption("--exclude", arguments.exclude, "Omit names of the source that match this shell pattern");
}

absl::StatusOr<TensorChoice> ReadChoice(const ChoiceArguments& arguments) {
  TensorChoice choice;
  choice.include = arguments.include;
  choice.exclude = arguments.exclude;
  if (!arguments.mapping.empty()) {
    CAIRN_ASSIGN_OR_RETURN(choice.mapping, ReadMapping(arguments.mapping));
    if (arguments.reverse) choice.mapping->reverse = !choice.mapping->reverse;
  } else if (arguments.reverse) {
    return MakeError(Reason::kBadRequest, "--reverse needs a --mapping to run backwards",
                     {{"next", "Add --mapping FILE, a load's mapping; or leave --reverse out."}});
  }
  return choice;
}

}  // namespace cairn::cli
