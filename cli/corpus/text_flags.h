// The flags of the commands that read texts: plain text, or JSON lines and what is read as such. How an input is read
// follows from its name, by the same rule in all of them.
#ifndef CAIRN_CLI_CORPUS_TEXT_FLAGS_H_
#define CAIRN_CLI_CORPUS_TEXT_FLAGS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/base/command.h"
#include "corpus/bpe/line_texts.h"

namespace cairn::cli {

struct TextArguments {
  std::string json_key;
  std::string max_line = "32MiB";
  std::optional<Argument> max_line_flag;
};

// Adds --json-key and --max-line.
void AddTextOptions(Command command, TextArguments& arguments);

// Returns how these inputs are read. JSON lines (*.jsonl, *.ndjson, also compressed), tables and tars have a text in
// each object; with --json-key all inputs are of this kind. Others are plain text, of the unit `plain`. BAD_REQUEST:
// there are both kinds; --max-line has no effect, or as ParseMaxLine.
absl::StatusOr<corpus::LineTextOptions> ReadTextArguments(const TextArguments& arguments,
                                                          const std::vector<std::string>& inputs,
                                                          corpus::TextUnit plain = corpus::TextUnit::kLine);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_CORPUS_TEXT_FLAGS_H_
