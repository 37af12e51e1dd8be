#include "cli/corpus/corpus_mds_command.h"

#include <atomic>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "cli/base/interrupt.h"
#include "cli/base/progress_line.h"
#include "cli/corpus/corpus_error.h"
#include "cli/corpus/input_files.h"
#include "common/base/clock.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/indexed/indexed_format.h"
#include "corpus/indexed/mds_export.h"
#include "corpus/io/files_below.h"

namespace cairn::cli {
namespace {

struct Arguments {
  std::string prefix, output;
  uint64_t sequence_length = 0;
};

absl::StatusOr<corpus::MdsReport> Export(const Arguments& given) {
  if (given.output.empty()) {
    return MakeError(Reason::kBadRequest, "--output is empty", {{"next", "Name a directory."}});
  }
  const std::string prefix = PrefixOfPair(given.prefix);
  corpus::MdsExportOptions options = {.prefix = prefix, .directory = given.output, .stop = &InterruptFlag()};
  if (given.sequence_length > 0) options.sequence_length = given.sequence_length;
  std::atomic<uint64_t> done{0};
  options.bytes_done = &done;
  const uint64_t total = corpus::BytesOf({corpus::BinPath(prefix)});
  const absl::Time start = Clock::Real().SteadyNow();
  const ProgressLine line([&] {
    return DescribeProgress("writing", done, total, absl::ToDoubleSeconds(Clock::Real().SteadyNow() - start));
  });
  return corpus::ExportMds(options);
}

absl::Status Run(const Arguments& given, const CommandContext& context) {
  const absl::StatusOr<corpus::MdsReport> report = Export(given);
  CAIRN_RETURN_IF_ERROR(report.status());
  if (context.json()) {
    const nlohmann::ordered_json json = {{"output", given.output},
                                         {"dtype", report->dtype},
                                         {"samples", report->samples},
                                         {"shards", report->shards},
                                         {"tokens", report->tokens},
                                         {"empty_documents", report->empty_documents},
                                         {"tokens_left", report->tokens_left}};
    absl::PrintF("%s\n", JsonText(json));
    return absl::OkStatus();
  }
  absl::PrintF("%s: %d samples, %d tokens (%s) in %d shards\n", given.output, report->samples, report->tokens,
               report->dtype, report->shards);
  if (report->empty_documents > 0) absl::PrintF("left out: %d empty documents\n", report->empty_documents);
  if (report->tokens_left > 0) {
    absl::PrintF("left out: %d tokens at the end, too few for a sample\n", report->tokens_left);
  }
  return absl::OkStatus();
}

}  // namespace

void AddCorpusMdsCommand(Command corpus, CommandContext& context) {
  auto given = std::make_shared<Arguments>();
  Command command =
      corpus.AddCommand("mds", "Writes a .bin/.idx pair as a dataset of MosaicML's Streaming library (MDS)");
  command.AddOption("PREFIX", given->prefix, "The path of PREFIX.bin and PREFIX.idx, or s3://BUCKET/KEY").Required();
  command
      .AddOption("--output", given->output,
                 "The directory for index.json and the shards, or s3://BUCKET/PREFIX. It may have no index.json yet")
      .Required();
  command
      .AddOption("--sequence-length", given->sequence_length,
                 "Cut all tokens in a row into samples of this many. By default each document is a sample")
      .Positive();
  command.Footer("Example:\n  cairn corpus mds data/corpus_text_document --output mds --sequence-length 2048");
  command.Action([given, &context] { RunCorpusCommand(context, [&] { return Run(*given, context); }); });
}

}  // namespace cairn::cli
