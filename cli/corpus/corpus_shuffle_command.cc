#include "cli/corpus/corpus_shuffle_command.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "cli/base/interrupt.h"
#include "cli/base/progress_line.h"
#include "cli/corpus/corpus_error.h"
#include "cli/corpus/engine_run.h"
#include "cli/corpus/note.h"
#include "cli/corpus/shuffle_on_engine.h"
#include "common/base/clock.h"
#include "common/process/quantity.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/io/output_compression.h"
#include "corpus/io/output_place.h"
#include "corpus/shuffle/shuffle.h"
#include "corpus/shuffle/shuffle_output.h"
#include "corpus/shuffle/shuffle_parts.h"

namespace cairn::cli {
namespace {

struct Arguments {
  std::vector<std::string> inputs;
  std::string output;
  std::string memory = "1GiB";
  std::string seed = "0";
  std::string temp_dir;
  int threads = 0;
  bool resume = false;
  bool no_scratch = false;
  uint64_t split_lines = 0;
  std::string split_bytes;
  uint64_t split_files = 0;
  std::string compress;
  uint64_t header = 0;
  std::string separator = "\\n";
  std::vector<std::string> columns;
  std::string checkpoint_interval = "1GiB";
  bool buffered = false;
  std::string bucket;
  uint32_t buckets = 0;
  std::optional<int64_t> at;
  EngineArguments engine;
};

absl::StatusOr<char> ParseSeparator(const std::string& text) {
  if (text.size() == 1) return text[0];
  if (text == "\\n") return '\n';
  if (text == "\\t") return '\t';
  if (text == "\\r") return '\r';
  if (text == "\\0" || text == "NUL") return '\0';
  uint32_t code;
  if (text.size() == 4 && text.substr(0, 2) == "\\x" && absl::SimpleHexAtoi(text.substr(2), &code)) {
    return static_cast<char>(code);
  }
  return MakeError(
      Reason::kBadRequest,
      absl::StrCat("--separator is one byte: a character, \\n, \\t, \\r, \\0 or \\x1e, not \"", text, "\""),
      {{"next", "Give one byte, as --separator '\\n'."}});
}

absl::StatusOr<uint64_t> ParseSeed(const std::string& text) {
  uint64_t seed;
  int64_t negative;
  if (absl::SimpleAtoi(text, &seed)) return seed;
  if (absl::SimpleAtoi(text, &negative)) return static_cast<uint64_t>(negative);
  return MakeError(Reason::kBadRequest, absl::StrCat("--seed \"", text, "\" is no whole number from -2^63 to 2^64 - 1"),
                   {{"next", "Give one in this range, as --seed 42."}});
}

absl::StatusOr<corpus::ShuffleOptions> ToOptions(const Arguments& arguments) {
  corpus::ShuffleOptions options;
  options.inputs = arguments.inputs;
  options.output = arguments.output;
  CAIRN_ASSIGN_OR_RETURN(const int64_t memory, ParseSize(arguments.memory));
  options.memory = static_cast<uint64_t>(memory);
  CAIRN_ASSIGN_OR_RETURN(options.seed, ParseSeed(arguments.seed));
  options.temp_dir = arguments.temp_dir;
  options.threads = arguments.threads > 0 ? arguments.threads
                    : !arguments.engine.engine.empty()
                        ? 1  // of a task
                        : static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 16u));
  options.resume = arguments.resume;
  options.no_scratch = arguments.no_scratch;
  options.split_lines = arguments.split_lines;
  if (!arguments.split_bytes.empty()) {
    CAIRN_ASSIGN_OR_RETURN(const int64_t bytes, ParseSize(arguments.split_bytes));
    if (bytes == 0)
      return MakeError(Reason::kBadRequest, "--split-bytes is 0", {{"next", "Give a size, as --split-bytes 1GiB."}});
    options.split_bytes = static_cast<uint64_t>(bytes);
  }
  options.split_files = arguments.split_files;
  if (arguments.engine.part.empty() && !arguments.at.has_value()) {  // a part's files are no text
    std::optional<corpus::Compression> asked;
    if (arguments.compress == "gz") asked = corpus::Compression::kGzip;
    if (arguments.compress == "zst") asked = corpus::Compression::kZstd;
    CAIRN_ASSIGN_OR_RETURN(options.compression, corpus::CompressionForOutput(arguments.output, asked));
  }
  options.header_lines = arguments.header;
  CAIRN_ASSIGN_OR_RETURN(options.separator, ParseSeparator(arguments.separator));
  options.columns = arguments.columns;
  CAIRN_ASSIGN_OR_RETURN(const int64_t interval, ParseSize(arguments.checkpoint_interval));
  options.checkpoint_bytes = static_cast<uint64_t>(interval);
  options.direct = !arguments.buffered;
  if (!arguments.bucket.empty()) {
    CAIRN_ASSIGN_OR_RETURN(const corpus::InputPart bucket, corpus::ParsePart(arguments.bucket));
    options.placed = true;
    if (arguments.at.has_value()) options.at = static_cast<uint64_t>(*arguments.at);
    options.keys = corpus::KeysOfBucket(bucket);
  }
  return options;
}

// Says what --resume has found.
std::string Describe(const corpus::ShuffleResumption& found) {
  if (!found.earlier) return "--resume: there is no earlier run to go on from, so all is done";
  if (found.other) return "--resume: an earlier run had other inputs, seed or output options, so all is done anew";
  if (!found.resumed) {
    return "--resume: an earlier run has left nothing to go on from (it ended early, or had more memory), so all is "
           "done anew";
  }
  const auto size = [](uint64_t bytes) { return FormatSize(static_cast<int64_t>(bytes)); };
  if (found.bytes_written > 0) {
    return absl::StrCat("--resume: an earlier run has read all and written ", size(found.bytes_written), " of ",
                        size(found.bytes_read), "; the rest is written");
  }
  if (found.all_read) {
    return absl::StrCat("--resume: an earlier run has read all, ", size(found.bytes_read),
                        "; what is left is to write");
  }
  return absl::StrCat("--resume: an earlier run has read ", size(found.bytes_read), "; the rest is read, and written");
}

// Returns where people and scripts read the report: not among the lines, if those go to standard output.
std::FILE* ReportFile(const std::string& output) {
  const absl::StatusOr<corpus::OutputPlace> place = corpus::FindOutputPlace(output);
  return place.ok() && place->descriptor == STDOUT_FILENO ? stderr : stdout;
}

void PrintReport(const CommandContext& context, const corpus::ShuffleOptions& options,
                 const corpus::ShuffleReport& report, double seconds) {
  std::FILE* const file = ReportFile(options.output);
  const std::string checksum = ChecksumText(report.lines);
  if (context.json()) {
    const nlohmann::ordered_json json = {
        {"outputs", report.outputs},
        {"lines", report.lines.lines},
        {"bytes", report.lines.bytes + report.lines.lines},
        {"input_files", report.input_files},
        {"output_bytes", report.output_bytes},
        {"scratch_bytes", report.scratch_bytes},
        {"input_passes", report.input_passes},
        {"buckets", report.buckets},
        {"divided_buckets", report.divided_buckets},
        {"seed", options.seed},
        {"multiset_checksum", checksum},
        {"resumed", report.resumed},
        {"direct_io",
         {{"input", report.direct_input}, {"scratch", report.direct_scratch}, {"output", report.direct_output}}},
        {"seconds", seconds},
    };
    absl::FPrintF(file, "%s\n", JsonText(json));
    return;
  }
  std::vector<std::string> buffered;
  if (options.direct && !report.direct_input) buffered.push_back("input");
  if (options.direct && report.scratch_bytes > 0 && !report.direct_scratch) buffered.push_back("temporary file");
  if (options.direct && !report.direct_output) buffered.push_back("output");
  absl::FPrintF(file, "lines      %d in %d files, verified (checksum %s)\n", report.lines.lines, report.input_files,
                checksum);
  absl::FPrintF(file, "output     %s%s\n", report.outputs.front(),
                report.outputs.size() > 1
                    ? absl::StrCat(" ... ", report.outputs.back(), " (", report.outputs.size(), " files)")
                    : "");
  absl::FPrintF(file, "seed       %d\n", options.seed);
  absl::FPrintF(file, "way        %s\n",
                report.scratch_bytes > 0
                    ? absl::StrCat(report.buckets, " buckets, ", FormatSize(static_cast<int64_t>(report.scratch_bytes)),
                                   " of temporary disk", report.resumed ? ", resumed" : "")
                    : absl::StrCat("no temporary disk, input read ", report.input_passes, " times"));
  absl::FPrintF(file, "direct io  %s\n",
                !options.direct    ? "off"
                : buffered.empty() ? "yes"
                                   : absl::StrCat("yes, but buffered for ", absl::StrJoin(buffered, ", ")));
  absl::FPrintF(file, "time       %.1f s, %s/s\n", seconds,
                FormatSize(static_cast<int64_t>(static_cast<double>(report.lines.bytes) / std::max(seconds, 1e-3))));
}

absl::Status Run(const Arguments& arguments, CommandContext& context) {
  absl::StatusOr<corpus::ShuffleOptions> options = ToOptions(arguments);
  if (!options.ok()) {
    ReportCorpusError(context, options.status());
    context.exit_status = kUsage;
    return absl::OkStatus();
  }
  if (!arguments.engine.part.empty()) {
    CAIRN_ASSIGN_OR_RETURN(const nlohmann::ordered_json scattered,
                           ScatterForEngine(*options, arguments.engine.part, arguments.buckets));
    absl::PrintF("%s\n", JsonText(scattered));
    return absl::OkStatus();
  }
  const bool splits = options->Splits();
  std::vector<std::string> outputs;
  if (!options->at.has_value()) outputs = {splits ? corpus::PartPath(options->output, 0) : options->output};
  ReplacementNote replacement(outputs, splits ? " and the parts behind it" : "");
  options->begins = [&] { replacement.WorkHasBegun(); };
  options->found = [](const corpus::ShuffleResumption& found) { PrintNote(Describe(found)); };
  corpus::ShuffleProgress progress;
  const absl::Time start = Clock::Real().SteadyNow();
  absl::StatusOr<corpus::ShuffleReport> report;
  if (!arguments.engine.engine.empty()) {
    report = ShuffleOnEngine(arguments.engine, *options);
  } else {
    absl::Time pass_start = start;
    int shown_pass = 1;
    const ProgressLine line([&] {
      const int pass = progress.pass.load();
      if (pass != shown_pass) pass_start = Clock::Real().SteadyNow();
      shown_pass = pass;
      const double seconds = absl::ToDoubleSeconds(Clock::Real().SteadyNow() - pass_start);
      return pass == 2 ? DescribeProgress("pass 2 of 2: writing", progress.bytes_written, progress.bytes_total, seconds)
                       : DescribeProgress("pass 1 of 2: reading", progress.bytes_read, progress.bytes_total, seconds);
    });
    report = corpus::Shuffle(*options, InterruptFlag(), &progress);
  }
  CAIRN_RETURN_IF_ERROR(report.status());
  PrintReport(context, *options, *report, absl::ToDoubleSeconds(Clock::Real().SteadyNow() - start));
  return absl::OkStatus();
}

}  // namespace

void AddCorpusShuffleCommand(Command corpus, CommandContext& context) {
  auto arguments = std::make_shared<Arguments>();
  Command command = corpus.AddCommand(
      "shuffle", "Writes the lines of files of any size in a random order; every order is equally likely");
  command
      .AddOption("INPUT", arguments->inputs,
                 "Files (.gz, .xz and .zst are decompressed; rows of .parquet, .arrow and .feather and texts of .tar "
                 "become JSON lines), quoted "
                 "patterns or directories, each also as "
                 "s3://BUCKET/KEY; - is standard input")
      .Required();
  command
      .AddOption("--output,-o", arguments->output,
                 "The file to write, or s3://BUCKET/KEY, or - for standard output; with a split, data.jsonl becomes "
                 "data-00000.jsonl ...")
      .Required();
  command.AddOption("--memory", arguments->memory, "The most memory that the lines may take, 32MiB or more")
      .ShowDefault();
  command
      .AddOption("--seed", arguments->seed,
                 "The number that chooses the order. The same inputs and seed give the same output, whatever --memory "
                 "and --threads say")
      .ShowDefault();
  const Argument temp_dir = command.AddOption(
      "--temp-dir", arguments->temp_dir,
      "The directory of the temporary file, which is as large as the text. The default is that of the output; if it is "
      "in an object store, that of TMPDIR");
  command.AddOption("--threads", arguments->threads,
                    "How many threads work at the same time. The default is one for each core, 16 at most");
  const Argument resume =
      command.AddFlag("--resume", arguments->resume,
                      "Continue an interrupted run, and keep on disk what is needed to continue this one");
  Argument no_scratch = command.AddFlag(
      "--no-scratch", arguments->no_scratch,
      "Use no temporary file: read the whole input once for each part of the output that fits in memory");
  no_scratch.Excludes(temp_dir).Excludes(resume);
  Argument lines =
      command.AddOption("--split-lines", arguments->split_lines, "Write several files with this many lines each")
          .Positive();
  Argument bytes = command.AddOption("--split-bytes", arguments->split_bytes,
                                     "Write several files of at most this size before compression, as 512MiB");
  Argument files =
      command.AddOption("--split-files", arguments->split_files, "Write this many files, with equal numbers of lines")
          .Positive();
  lines.Excludes(bytes).Excludes(files);
  bytes.Excludes(files);
  Argument compress =
      command
          .AddOption("--compress", arguments->compress,
                     "How to compress an output whose name has no ending, as -. Otherwise the ending decides: .gz and "
                     ".zst compress, and a --compress that disagrees with it is refused")
          .OneOf({"gz", "zst"});
  command.AddOption(
      "--header", arguments->header,
      "How many lines at the start of each input are its header. They are not shuffled, and begin each output file");
  command
      .AddOption("--separator", arguments->separator, "The byte that ends a line: a character, \\n, \\t, \\0 or \\x1e")
      .ShowDefault();
  command.AddOption("--column", arguments->columns, "Columns to take from Parquet and Arrow files. The default is all")
      .TakesMany();
  command
      .AddOption("--checkpoint-interval", arguments->checkpoint_interval,
                 "With --resume: how much work, in bytes of text, an interruption may undo")
      .ShowDefault()
      .Needs(resume);
  const Argument part = AddEngineOptions(command, arguments->engine);
  for (Argument* of_output : {&lines, &bytes, &files, &compress, &no_scratch}) of_output->Excludes(part);
  command.AddOption("--buckets", arguments->buckets, "With --part: into how many files its lines go, by their order")
      .Between(1, corpus::kMostBuckets)
      .Needs(part);
  const Argument bucket =
      command
          .AddOption("--bucket", arguments->bucket,
                     "The inputs are files of the bucket I of N that --part has made: sort their lines")
          .Excludes(part);
  Argument at = command.AddOption("--at", arguments->at,
                                  "With --bucket: write the lines into the file --output from this byte on; others may "
                                  "write other parts of it at the same time");
  at.Between(0, INT64_MAX).Needs(bucket);
  for (Argument* of_output : {&lines, &bytes, &files, &compress}) of_output->Excludes(at);
  command.AddFlag("--buffered", arguments->buffered,
                  "Let the system keep the files in its page cache. By default they are read and written past it, "
                  "which costs less CPU");
  command.Footer(
      "Examples:\n"
      "  cairn corpus shuffle data.jsonl --output shuffled.jsonl --memory 8GiB --seed 42\n"
      "  cairn corpus shuffle 'part-*.jsonl.zst' --output out.jsonl.zst --split-files 64\n"
      "  cairn corpus shuffle big/ --output out.txt --temp-dir /scratch --resume   # again after a kill\n"
      "  cairn corpus shuffle 's3://bucket/raw/*.jsonl.zst' --output s3://bucket/shuffled.jsonl --temp-dir /scratch\n"
      "The output gets its name when it is complete and a checksum shows that it has all the lines that were read.");
  command.Action([arguments, &context] { RunCorpusCommand(context, [&] { return Run(*arguments, context); }); });
}

}  // namespace cairn::cli
