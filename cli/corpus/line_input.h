// The flags of the commands that read JSON lines and tables, document by document.
#ifndef CAIRN_CLI_CORPUS_LINE_INPUT_H_
#define CAIRN_CLI_CORPUS_LINE_INPUT_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/base/command.h"

namespace cairn::cli {

struct LineArguments {
  std::vector<std::string> inputs;
  std::string max_line = "32MiB";
  bool skip_bad_lines = false;
  int workers = 0;  // 0: as many as the command says
};

// Adds --input, --workers, --max-line and --skip-bad-lines.
void AddLineOptions(Command command, LineArguments& arguments);

struct LineInput {
  std::vector<std::string> files;
  size_t max_line = 0;  // bytes
  int workers = 1;
};

// Returns what the flags mean; without --workers there is one for each core. BAD_REQUEST: as ParseMaxLine. The errors
// of ExpandInputs.
absl::StatusOr<LineInput> ReadLineArguments(const LineArguments& arguments);

// Returns the bytes that --max-line says. BAD_REQUEST: it is no size, or none from 1 byte to 4 GiB.
absl::StatusOr<size_t> ParseMaxLine(const std::string& text);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_CORPUS_LINE_INPUT_H_
