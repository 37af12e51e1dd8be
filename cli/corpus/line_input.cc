#include "cli/corpus/line_input.h"

#include <algorithm>
#include <cstdint>
#include <thread>

#include "absl/strings/str_cat.h"
#include "cli/corpus/input_files.h"
#include "common/process/quantity.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/preprocess/line_batches.h"

namespace cairn::cli {

void AddLineOptions(Command command, LineArguments& arguments) {
  command
      .AddOption("--input", arguments.inputs,
                 "Files of JSON lines (.gz, .xz and .zst are decompressed), Parquet and Arrow files (.parquet, .arrow, "
                 ".feather), texts (*.txt) in a .tar, directories, quoted patterns, each also as s3://BUCKET/KEY, or "
                 "/dev/stdin")
      .Required()
      .TakesMany();
  command
      .AddOption("--workers", arguments.workers, "How many threads encode at the same time; 0 means one for each core")
      .Between(0, 1024)
      .ShowDefault();
  command
      .AddOption("--max-line", arguments.max_line,
                 "A line that is longer is bad; the longest one takes ten to thirty times its size in memory")
      .ShowDefault();
  command.AddFlag(
      "--skip-bad-lines", arguments.skip_bad_lines,
      "Leave bad lines out, and describe each in PREFIX_bad_lines.log. By default the first one ends the run");
}

absl::StatusOr<LineInput> ReadLineArguments(const LineArguments& arguments) {
  LineInput input;
  CAIRN_ASSIGN_OR_RETURN(input.files, ExpandInputs(arguments.inputs));
  CAIRN_ASSIGN_OR_RETURN(input.max_line, ParseMaxLine(arguments.max_line));
  input.workers =
      arguments.workers > 0 ? arguments.workers : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  return input;
}

absl::StatusOr<size_t> ParseMaxLine(const std::string& text) {
  CAIRN_ASSIGN_OR_RETURN(const int64_t bytes, ParseSize(text));
  if (bytes >= 1 && static_cast<uint64_t>(bytes) <= corpus::kMaxLineBytes) return static_cast<size_t>(bytes);
  return MakeError(Reason::kBadRequest, absl::StrCat("--max-line ", text, " is not between 1 byte and 4 GiB"),
                   {{"next", "Give a size, as --max-line 256MiB."}});
}

}  // namespace cairn::cli
