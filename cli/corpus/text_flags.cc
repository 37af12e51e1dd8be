#include "cli/corpus/text_flags.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/corpus/line_input.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/io/open_source.h"

namespace cairn::cli {
namespace {

bool IsJsonLines(const std::string& input) {
  std::string name = input;
  for (const char* ending : {".gz", ".xz", ".zst"}) {
    if (absl::EndsWith(name, ending)) name.resize(name.size() - std::string(ending).size());
  }
  return corpus::IsTable(name) || corpus::IsTar(name) || absl::EndsWith(name, ".jsonl") ||
         absl::EndsWith(name, ".ndjson");
}

}  // namespace

void AddTextOptions(Command command, TextArguments& arguments) {
  command.AddOption("--json-key", arguments.json_key,
                    "Read each line as a JSON object, and the text under this key. Without it, the names of JSON lines "
                    "(.jsonl) and tables say so, and the key is text");
  arguments.max_line_flag =
      command
          .AddOption("--max-line", arguments.max_line,
                     "A line that is longer ends the command. A line without blanks may take forty times its size in "
                     "memory")
          .ShowDefault();
}

absl::StatusOr<corpus::LineTextOptions> ReadTextArguments(const TextArguments& arguments,
                                                          const std::vector<std::string>& inputs,
                                                          corpus::TextUnit plain) {
  corpus::LineTextOptions options;
  CAIRN_ASSIGN_OR_RETURN(options.max_line, ParseMaxLine(arguments.max_line));
  const auto json_lines = std::find_if(inputs.begin(), inputs.end(), IsJsonLines);
  const auto text = std::find_if_not(inputs.begin(), inputs.end(), IsJsonLines);
  options.unit = plain;
  if (!arguments.json_key.empty() || (json_lines != inputs.end() && text == inputs.end())) {
    options.unit = corpus::TextUnit::kJson;
    if (!arguments.json_key.empty()) options.json_key = arguments.json_key;
  } else if (json_lines != inputs.end()) {
    return MakeError(Reason::kBadRequest,
                     absl::StrCat("some inputs are JSON lines, as ", *json_lines, ", and some are not, as ", *text),
                     {{"next", "Give only inputs of one kind, or --json-key, so that all are read as JSON lines."}});
  }
  if (options.unit == corpus::TextUnit::kFile && arguments.max_line_flag->given()) {
    return MakeError(Reason::kBadRequest, "--max-line has no effect: a file of plain text is one text",
                     {{"next", "Leave --max-line out, or give --by-line."}});
  }
  return options;
}

}  // namespace cairn::cli
