#include "cli/corpus/corpus_merge_command.h"

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "cli/base/interrupt.h"
#include "cli/base/progress_line.h"
#include "cli/base/terminal.h"
#include "cli/corpus/corpus_error.h"
#include "cli/corpus/engine_run.h"
#include "cli/corpus/note.h"
#include "common/base/clock.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/indexed/indexed_format.h"
#include "corpus/indexed/indexed_merge.h"
#include "corpus/io/input_part.h"

namespace cairn::cli {
namespace {

struct Arguments {
  std::string input;
  std::string output_prefix;
  std::string into;
  EngineArguments engine;
};

// Lets tasks copy the tokens, each a part into the one new file.
absl::Status CopyOnEngine(const Arguments& arguments, const std::string& bin, uint64_t bytes) {
  CAIRN_ASSIGN_OR_RETURN(const auto run, EngineRun::Start(arguments.engine, 1, arguments.output_prefix));
  const uint32_t parts = run->PartsFor(bytes);
  const std::vector<std::string> words = WordsForTasks({"--output-prefix"});
  std::vector<corpus::EngineTask> tasks;
  for (uint32_t number = 1; number <= parts; ++number) {
    corpus::EngineTask task{absl::StrCat("part ", number, " of ", parts), words, std::nullopt, bytes / parts};
    task.words.insert(task.words.end(), {"--part", absl::StrCat(number, "/", parts), "--into", bin, "--output-prefix",
                                         arguments.output_prefix});
    tasks.push_back(std::move(task));
  }
  CAIRN_ASSIGN_OR_RETURN(const std::vector<nlohmann::json> reports, run->Run("copying", tasks));
  uint64_t copied = 0;
  for (const nlohmann::json& report : reports) copied += report.at("bytes").get<uint64_t>();
  if (copied == bytes) return absl::OkStatus();
  return MakeError(Reason::kInputUnreadable, absl::StrCat("the tasks have copied ", copied, " bytes of ", bytes),
                   {{"next",
                     "See that all nodes have the same pairs, and that nothing writes there; then give the command "
                     "again."}});
}

absl::Status CopyPart(const Arguments& arguments) {
  CAIRN_ASSIGN_OR_RETURN(const corpus::InputPart part, corpus::ParsePart(arguments.engine.part));
  if (arguments.into.empty()) {
    return MakeError(Reason::kBadRequest, "--part needs --into, the file that all parts are copied to");
  }
  CAIRN_ASSIGN_OR_RETURN(const auto prefixes, corpus::ListIndexed(arguments.input));
  CAIRN_ASSIGN_OR_RETURN(const uint64_t bytes,
                         corpus::CopyPartOfTokens(prefixes, part.number, part.of, arguments.into, InterruptFlag()));
  absl::PrintF("%s\n", JsonText({{"bytes", bytes}}));
  return absl::OkStatus();
}

absl::StatusOr<corpus::MergeReport> Merge(const Arguments& arguments) {
  CAIRN_ASSIGN_OR_RETURN(const auto prefixes, corpus::ListIndexed(arguments.input));
  if (prefixes.empty()) {
    return MakeError(Reason::kBadRequest, absl::StrCat("there is no .bin/.idx pair in ", arguments.input),
                     {{"file", arguments.input},
                      {"next",
                       "Name the directory in which the pairs are; it is not looked "
                       "below."}});
  }
  ReplacementNote replacement({corpus::BinPath(arguments.output_prefix), corpus::IdxPath(arguments.output_prefix)});
  absl::StatusOr<corpus::MergeReport> report;
  if (!arguments.engine.engine.empty()) {
    report = corpus::MergeIndexed(prefixes, arguments.output_prefix, InterruptFlag(), nullptr,
                                  [&](const std::string& bin, uint64_t bytes) {
                                    replacement.WorkHasBegun();
                                    return CopyOnEngine(arguments, bin, bytes);
                                  });
  } else {
    std::atomic<uint64_t> done{0};
    const absl::Time start = Clock::Real().SteadyNow();
    const ProgressLine line(
        [&] { return DescribeProgress("merging", done, 0, absl::ToDoubleSeconds(Clock::Real().SteadyNow() - start)); });
    report = corpus::MergeIndexed(prefixes, arguments.output_prefix, InterruptFlag(), &done);
  }
  if (report.ok()) replacement.WorkIsDone();
  return report;
}

absl::Status Run(const Arguments& arguments, const CommandContext& context) {
  if (!arguments.engine.part.empty()) return CopyPart(arguments);
  const absl::StatusOr<corpus::MergeReport> report = Merge(arguments);
  CAIRN_RETURN_IF_ERROR(report.status());
  if (context.json()) {
    const nlohmann::ordered_json json = {{"prefix", arguments.output_prefix}, {"inputs", report->prefixes},
                                         {"documents", report->documents},    {"sequences", report->sequences},
                                         {"tokens", report->tokens},          {"kernel_bytes", report->kernel_bytes}};
    absl::PrintF("%s\n", JsonText(json));
    return absl::OkStatus();
  }
  absl::PrintF("merged     %d pairs, in this order:\n", report->prefixes.size());
  for (const std::string& prefix : report->prefixes) absl::PrintF("             %s\n", ForTerminal(prefix));
  absl::PrintF("output     %s.bin, .idx\ndocuments  %d\nsequences  %d\ntokens     %d\n", arguments.output_prefix,
               report->documents, report->sequences, report->tokens);
  return absl::OkStatus();
}

}  // namespace

void AddCorpusMergeCommand(Command corpus, CommandContext& context) {
  auto arguments = std::make_shared<Arguments>();
  Command command = corpus.AddCommand(
      "merge", "Joins all .bin/.idx pairs of a directory into one pair, as Megatron's merge_datasets.py does");
  command
      .AddOption("--input", arguments->input,
                 "The directory with the pairs, or s3://BUCKET/PREFIX. They are joined in the order of their names")
      .Required();
  command
      .AddOption("--output-prefix", arguments->output_prefix,
                 "The path of the new files PREFIX.bin and PREFIX.idx, or s3://BUCKET/KEY, without their endings")
      .Required();
  const Argument part = AddEngineOptions(command, arguments->engine);
  command.AddOption("--into", arguments->into, "With --part: the file to which the tokens of all parts are copied")
      .Needs(part);
  command.Footer("Example:\n  cairn corpus merge --input parts/ --output-prefix corpus_text_document");
  command.Action([arguments, &context] { RunCorpusCommand(context, [&] { return Run(*arguments, context); }); });
}

}  // namespace cairn::cli
