#include "cli/corpus/corpus_merge_command.h"

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "cli/base/interrupt.h"
#include "cli/base/progress_line.h"
#include "cli/base/terminal.h"
#include "cli/corpus/replaced_output.h"
#include "common/base/clock.h"
#include "common/status/status.h"
#include "corpus/indexed/indexed_format.h"
#include "corpus/indexed/indexed_merge.h"

namespace cairn::cli {
namespace {

struct Arguments {
  std::string input;
  std::string output_prefix;
};

absl::StatusOr<corpus::MergeReport> Merge(const Arguments& arguments) {
  CAIRN_ASSIGN_OR_RETURN(const auto prefixes, corpus::ListIndexed(arguments.input));
  NoteReplaced({corpus::BinPath(arguments.output_prefix), corpus::IdxPath(arguments.output_prefix)});
  std::atomic<uint64_t> done{0};
  const absl::Time start = Clock::Real().SteadyNow();
  const ProgressLine line(
      [&] { return DescribeProgress("merging", done, 0, absl::ToDoubleSeconds(Clock::Real().SteadyNow() - start)); });
  return corpus::MergeIndexed(prefixes, arguments.output_prefix, InterruptFlag(), &done);
}

void Run(const Arguments& arguments, CommandContext& context) {
  const absl::StatusOr<corpus::MergeReport> report = Merge(arguments);
  if (!report.ok()) {
    context.exit_status = ReportError(context, report.status());
    return;
  }
  if (context.json()) {
    const nlohmann::ordered_json json = {{"prefix", arguments.output_prefix}, {"inputs", report->prefixes},
                                         {"documents", report->documents},    {"sequences", report->sequences},
                                         {"tokens", report->tokens},          {"kernel_bytes", report->kernel_bytes}};
    absl::PrintF("%s\n", JsonText(json));
    return;
  }
  absl::PrintF("merged     %d pairs, in this order:\n", report->prefixes.size());
  for (const std::string& prefix : report->prefixes) absl::PrintF("             %s\n", ForTerminal(prefix));
  absl::PrintF("output     %s.bin, .idx\ndocuments  %d\nsequences  %d\ntokens     %d\n", arguments.output_prefix,
               report->documents, report->sequences, report->tokens);
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
  command.Footer("Example:\n  cairn corpus merge --input parts/ --output-prefix corpus_text_document");
  command.Action([arguments, &context] { Run(*arguments, context); });
}

}  // namespace cairn::cli
