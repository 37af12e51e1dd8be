#include "cli/corpus/corpus_merge_command.h"

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/time/time.h"
#include "cli/base/interrupt.h"
#include "cli/base/progress_line.h"
#include "cli/base/terminal.h"
#include "common/base/clock.h"
#include "common/status/status.h"
#include "corpus/indexed/indexed_merge.h"

namespace cairn::cli {
namespace {

struct Arguments {
  std::string input;
  std::string output_prefix;
};

absl::StatusOr<corpus::MergeReport> Merge(const Arguments& arguments) {
  CAIRN_ASSIGN_OR_RETURN(const auto prefixes, corpus::ListIndexed(arguments.input));
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
    std::printf("%s\n", JsonText(json).c_str());
    return;
  }
  std::printf("merged     %zu pairs, in this order:\n", report->prefixes.size());
  for (const std::string& prefix : report->prefixes) std::printf("             %s\n", ForTerminal(prefix).c_str());
  std::printf("output     %s.bin, .idx\ndocuments  %llu\nsequences  %llu\ntokens     %llu\n",
              arguments.output_prefix.c_str(), static_cast<unsigned long long>(report->documents),
              static_cast<unsigned long long>(report->sequences), static_cast<unsigned long long>(report->tokens));
}

}  // namespace

void AddCorpusMergeCommand(Command corpus, CommandContext& context) {
  auto arguments = std::make_shared<Arguments>();
  Command command =
      corpus.AddCommand("merge", "One .bin/.idx pair of all pairs in a directory, as Megatron's merge_datasets.py");
  command.AddOption("--input", arguments->input, "Directory of the pairs; they are taken in the order of their names")
      .Required();
  command.AddOption("--output-prefix", arguments->output_prefix, "Writes PREFIX.bin and PREFIX.idx").Required();
  command.Footer("Example:\n  cairn corpus merge --input parts/ --output-prefix corpus_text_document");
  command.Action([arguments, &context] { Run(*arguments, context); });
}

}  // namespace cairn::cli
